/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of jobs that span daemons, with the words of their other nodes: which members these wait for, and how
 * their own members are. Each node shows its part to the coordinator's daemon, which keeps the latest
 * statement of each. A daemon that needs them asks there, keeps the answer for a moment, and shows it to
 * people. It decides one thing by it: that members of several nodes wait for each other
 * (job/watch/deadlock.h). Words of other daemons are bounded, charged to the job's user, and checked like
 * frames of a client.
 */
#pragma once

#include "job/job.h"
#include "job/watch/waits.h"
#include "proto/codec.h"

#define VIEWS_FRESH 20000u   /* us for which an answer serves further questions, */
#define VIEWS_RECORD 500000u /* and a record, which is long */
#define VIEWS_WAIT 600000u   /* us after which an end that has not answered is silent */
#define VIEWS_SHOW 500000u   /* us after which a node shows its part anew */
#define VIEWS_NAMED 16u      /* most members that one wait for nodes is found to be for */

struct views;
struct view;

/* 0 or -ENOMEM. */
int views_new(struct loop *loop, struct users *accounts, struct views **ret);
/* NULL is fine. */
struct views *views_free(struct views *views);

/* `complete` is called whenever an answer is complete. It may ask again. */
void views_on_complete(struct views *views, void (*complete)(void *data), void *data);
/* `trouble` says what is wrong with the way to the coordinator, if that does not answer. */
void views_set_trouble(struct views *views, void (*trouble)(void *data, char *text, size_t size), void *data);

enum view_of {
        VIEW_OTHERS,    /* what all other nodes say: the coordinator's daemon answers that */
        VIEW_STATEMENT, /* at the coordinator's daemon: what that node says */
        VIEW_RECORD,    /* the flight record of that node */
};

/* The views that a query is about. Their answers must be of `after` or later. */
struct wanted_view {
        enum view_of what;
        uint32_t node;
        uint64_t after;
};

/* The view of that job, and of that node, if it is of one. NULL: there is none, or memory is short. Valid
 * until the loop's next pass. */
struct view *views_find(const struct views *views, const struct hub_job *job, enum view_of what,
                        uint32_t node);
struct view *views_get(struct views *views, const struct hub_job *job, enum view_of what, uint32_t node);
/* The answer was asked for, or the statement came, at `after` or later. */
bool view_is_of(const struct view *view, uint64_t after);
/* A question is open. */
bool view_is_coming(const struct view *view);
/* Begins a question, which the caller asks now under this number; then it says whether that was possible. */
uint32_t view_begin(struct view *view);
void view_asked(struct view *view, uint32_t id, bool asked);
/* A letter of the answer. The last one begins with STATUS_END or TRACE_END, under the question's number. */
void view_take(struct view *view, const void *frames, size_t bytes);
/* A statement, in place of the earlier one. */
void view_keep(struct view *view, const void *frames, size_t bytes);
/* All rows, as frames. */
const void *view_rows(const struct view *view, size_t *ret_bytes);

/* Unpacks the next one of several frames, from *at = 0 on. NULL after the last one, or at a malformed one. It
 * is valid until the next call, also of view_next(). */
const ProtobufCMessage *views_decode(struct views *views, const void *frames, size_t bytes, size_t *at,
                                     struct frame_header *ret);
/* The next row, from *at = 0 on: NULL after the last one. It is valid until the next call, for any view. */
const ProtobufCMessage *view_next(struct view *view, size_t *at, uint16_t *ret_type);
/* See struct jobs_observer. NULL: there is no view. */
unsigned view_blame(struct view *view, const struct job_wait *wait, struct job_wait *waits, unsigned max);
/* Lists nodes that say nothing. */
unsigned view_silent(struct view *view, struct job_wait *waits, unsigned max);
/* The coordinator has said nothing. */
bool view_trouble(const struct view *view, struct job_wait *ret);
/* "3 of 4 members; host b has none", of a forming job with so many members that are not in the view. */
void view_missing(struct view *view, unsigned here, uint32_t world, char *text, size_t size);
