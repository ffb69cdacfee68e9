/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where those stand that want something of the event thread and are not in the middle of a job's steps: they
 * connect, ask, join, describe plans. In one pass of the loop they get a budget of time, all users together,
 * and beyond it they stand in line: one of each user, then the next of each. So whoever is in steps waits for
 * one such budget, however many users there are and whatever they ask; and while steps go on, all that is
 * asked beside them gets one part of LINE_PART of the time. Who looks after the daemon needs no such part,
 * and comes first; then come users that have running jobs, then the others. Of each two classes the first has
 * LINE_FIRST turns for each one behind it. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "loop.h"

#define LINE_BUDGET 1000u /* us in a pass */
#define LINE_PART 16u     /* one of so many parts of the time, while steps go on */
#define LINE_CALM 20000u  /* us after the last step: none go on */
#define LINE_FIRST 3u     /* turns of a class, for each one of those behind it */

enum line_class {
        LINE_OPERATORS, /* they come first */
        LINE_RUNNING,   /* with a running job */
        LINE_OTHERS,
        LINE_CLASSES,
};

struct line_place { /* of who stands there, in its owner */
        struct list link;
};

struct line_queue { /* of one user */
        struct list link, places;
};

struct line {
        struct loop *loop;
        struct list users[LINE_CLASSES]; /* that have somebody in it */
        unsigned turns[LINE_CLASSES];    /* since one of those behind had one */
        struct loop_deferred serving;
        enum line_class (*class_of)(const struct line_queue *queue);
        void (*serve)(struct line_place *place);
        uint64_t pass, spent;     /* us in that pass of the loop */
        uint64_t stepped, looked; /* clock_now() at the last step, and when what is left was last looked at */
        int64_t left; /* LINE_PART times what they may have now, us; below 0: that long they have to wait */
        struct loop_timer *due; /* when there is some again */
};

/* serve() is called when it is somebody's turn, who then stands there no more; what that takes is to be
 * charged. class_of() is asked for each turn that a user waits for. 0 or negative errno. */
int line_init(struct line *line, struct loop *loop, void (*serve)(struct line_place *place),
              enum line_class (*class_of)(const struct line_queue *queue));
void line_deinit(struct line *line); /* nobody may stand in it (asserted) */
/* Somebody is in steps now. */
void line_stepped(struct line *line);
/* The time left in this pass for who has just come; 0: it has to stand in line. */
uint64_t line_left(struct line *line, const struct line_queue *queue);
void line_charge(struct line *line, const struct line_queue *queue, uint64_t us);
/* Harmless if it stands there already. */
void line_add(struct line *line, struct line_queue *queue, struct line_place *place);
void line_leave(struct line_queue *queue, struct line_place *place); /* the same, if it does not */

static inline void line_place_init(struct line_place *place) {
        list_init(&place->link);
}

static inline void line_queue_init(struct line_queue *queue) {
        list_init(&queue->link);
        list_init(&queue->places);
}
