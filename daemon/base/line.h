/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queue for requests outside of steps, which need the event thread: connect, status, join, descriptions of
 * plans. In one pass of the loop such requests get a budget of time, for all users together. Requests beyond
 * it stand in line, fair by user: one request of each user, then the next of each. So a member in the middle
 * of a step waits for one such budget, however many users there are and whatever they ask for. While steps go
 * on, all requests together get one part in LINE_PART of the time. Trusted users (user_is_trusted()) are
 * exempt from that part and come first, then users that have running jobs, then the others. A class has
 * LINE_FIRST turns for each turn of the classes behind it. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "list.h"
#include "loop.h"
#include "token_bucket.h"

#define LINE_BUDGET 1000u /* us in one pass of the loop */
#define LINE_PART 16u     /* requests get one part in so many of the time while steps go on */
#define LINE_CALM 20000u  /* us after the last step, when steps no longer go on */
#define LINE_FIRST 3u     /* turns of a class for each turn of the classes behind it */

enum line_class {
        LINE_OPERATORS, /* trusted users */
        LINE_RUNNING,   /* users with a running job */
        LINE_OTHERS,
        LINE_CLASSES,
};

struct line_place { /* a waiting request's place, in its owner */
        struct list link;
};

struct line_queue { /* the places of one user */
        struct list link, places;
};

struct line {
        struct loop *loop;
        struct list users[LINE_CLASSES]; /* the users with waiting places */
        unsigned turns[LINE_CLASSES];    /* turns since a class behind had one */
        struct loop_deferred serving;
        enum line_class (*class_of)(const struct line_queue *queue);
        void (*serve)(struct line_place *place);
        uint64_t pass, spent;     /* the pass of the loop in which time was last spent, and us spent in it */
        uint64_t stepped;         /* clock_now() at the last step */
        struct token_bucket part; /* us that requests may take while steps go on */
        struct loop_timer *due;   /* fires when `part` allows requests again */
};

/* serve() is called when a place has its turn, and has left the line by then; serve() charges the time that
 * it takes. class_of() returns the class of a user; it is asked again for each turn that the user waits for.
 * 0 or a negative errno. */
int line_init(struct line *line, struct loop *loop, void (*serve)(struct line_place *place),
              enum line_class (*class_of)(const struct line_queue *queue));
void line_deinit(struct line *line); /* no place may wait (asserted) */
/* Notes that a step goes on now. */
void line_stepped(struct line *line);
/* Returns the us that a request which has just come may take in this pass; 0: it has to stand in line. */
uint64_t line_left(struct line *line, const struct line_queue *queue);
void line_charge(struct line *line, const struct line_queue *queue, uint64_t us);
/* Puts a place in line. Harmless if it stands there already. */
void line_add(struct line *line, struct line_queue *queue, struct line_place *place);
void line_leave(struct line_queue *queue, struct line_place *place); /* harmless if it does not stand there */

static inline void line_place_init(struct line_place *place) {
        list_init(&place->link);
}

static inline void line_queue_init(struct line_queue *queue) {
        list_init(&queue->link);
        list_init(&queue->places);
}
