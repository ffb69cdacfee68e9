/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that wait for each other in a circle: one is in the end of a step that lacks the gradients of
 * another one, and that one is in an operation that lacks the first one's call. No deadline of theirs would
 * name both. The job ends when nothing of that has changed for a while.
 *
 * A member is blocked if a call of it waits and its library says that it does nothing else meanwhile: with an
 * operation, or, of a step and of the agreement on a plan, in its diagnosis page. Then it does not give what
 * others lack. A member that may do something else in another thread is never counted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "job/data.h"
#include "job/watch/waits.h"
#include "proto/frame.h"

#define CALL_TEXT 160u /* bytes: "operation 6, broadcast of 264 bytes from rank 0" */

/* A member of another node that is blocked in something else, while others wait for it. */
struct entangled {
        struct want in;
        uint32_t rank;
        pid_t pid;
        char host[LIMIT_TEXT + 1];
        bool traced;
        char call[CALL_TEXT];       /* what it is in */
        char lacks[LIMIT_NAME + 1]; /* the first parameter that it has not marked; "": none, or not known */
};

/* Looks for a circle. True once nothing of it has changed for deadlock_timeout, and not less than `patience`:
 * the job is to be ended. */
bool deadlock_is_due(struct job *job, uint64_t patience, uint64_t now);
/* Whether there is a circle now; `text`: which one. */
bool deadlock_describe(struct job *job, char *text, size_t size);
/* Nothing is known of a circle any more. */
void deadlock_forget(struct job *job);
/* If all members of this node have given to what the wait (WAIT_NODES) is for what they have to: the ranks of
 * those that are blocked in it, and how many they are; `call` says what they are in. Else 0. */
uint32_t deadlock_list_blocked(const struct job *job, const struct job_wait *wait,
                               uint32_t ranks[LIMIT_LOCAL], char call[CALL_TEXT]);
