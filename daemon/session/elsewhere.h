/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the other nodes of jobs that span daemons say of them: whom they wait for, and how their members are.
 * It is asked for when a person wants to know, is kept for a moment, and is shown to people. One thing is
 * decided by it: that members of several nodes wait for each other (job/watch/deadlock.h). There is one view
 * for each job: of this daemon, or with its coordinator here. What comes from other daemons is bounded,
 * charged to the job's user, and checked like a frame of a client.
 */
#pragma once

#include "job/job.h"
#include "job/watch/waits.h"
#include "proto/codec.h"

#define ELSEWHERE_FRESH 20000u /* us for which an answer is shown to further people */
#define ELSEWHERE_WAIT 600000u /* us after which a coordinator that has not answered is silent */
#define ELSEWHERE_NAMED 16u    /* most members that one wait for nodes is found to be for */

struct elsewhere;
struct sessions;
struct view;

/* 0 or -ENOMEM. */
int elsewhere_new(struct loop *loop, struct users *accounts, struct elsewhere **ret);
/* NULL is fine. */
struct elsewhere *elsewhere_free(struct elsewhere *elsewhere);

/* Is called whenever an answer is complete. It may ask again. */
void elsewhere_on_complete(struct elsewhere *elsewhere, void (*complete)(void *data), void *data);
/* How the way to the coordinator is, if that does not answer. */
void elsewhere_set_trouble(struct elsewhere *elsewhere, void (*trouble)(void *data, char *text, size_t size),
                           void *data);

/* The view of that job; NULL: nobody has asked, or there is no memory. Valid until the loop's next pass. */
struct view *elsewhere_find(const struct elsewhere *elsewhere, uid_t uid, const char *name,
                            uint64_t incarnation);
struct view *elsewhere_get(struct elsewhere *elsewhere, uid_t uid, const char *name, uint64_t incarnation);
/* It shows how things were at `after`, or later. */
bool view_is_of(const struct view *view, uint64_t after);
/* A question is open. */
bool view_is_coming(const struct view *view);
/* The number of a new question of no view. */
uint32_t elsewhere_number(struct elsewhere *elsewhere);
/* The number of a new question, which is to be asked now; then whether it could be. */
uint32_t view_begin(struct view *view);
void view_asked(struct view *view, uint32_t id, bool asked);
void elsewhere_told(struct elsewhere *elsewhere, const struct hub_told *told);

/* Of frames one after the other, the next one, from *at = 0 on: NULL after the last one, or where they are
 * malformed. It is valid until the next call, of view_next() too. */
const ProtobufCMessage *elsewhere_decode(struct elsewhere *elsewhere, const void *frames, size_t bytes,
                                         size_t *at, uint16_t *ret_type);
/* The next row, from *at = 0 on: NULL after the last one. It is valid until the next call, for any view. */
const ProtobufCMessage *view_next(struct view *view, size_t *at, uint16_t *ret_type);
/* See struct jobs_observer. NULL: there is no view. */
unsigned view_blame(struct view *view, const struct job_wait *wait, struct job_wait *waits, unsigned max);
/* Nodes, and the coordinator if `coordinator`, that say nothing. */
unsigned view_silent(struct view *view, bool coordinator, struct job_wait *waits, unsigned max);
/* " host b has none", of a job that waits for members. */
void view_empty(const struct view *view, char *text, size_t size);
