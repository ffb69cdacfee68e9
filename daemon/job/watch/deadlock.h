/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that wait for each other in a circle: one is in the end of a step that lacks the gradients of
 * another one, and that one is in an operation that lacks the first one's call. No deadline of theirs would
 * name both. The job ends when nothing of that has changed for a while.
 *
 * A member is blocked in what it has called and cannot leave: an operation, the agreement on a plan, or, as
 * its library says in its diagnosis page, the end of a step. What it lacks elsewhere it cannot give then.
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
        char call[CALL_TEXT];       /* what it is in */
        char lacks[LIMIT_NAME + 1]; /* the first parameter that it has not marked; "": none, or not known */
};

/* Looks for a circle. True once nothing of it has changed for deadlock_timeout, and not less than `patience`:
 * the job is to be ended. */
bool deadlock_is_due(struct job *job, uint64_t patience, uint64_t now);
/* Whether there is a circle now; `text`: which one. */
bool deadlock_describe(struct job *job, char *text, size_t size);
/* If all members of this node are blocked in what the wait (WAIT_NODES) is for, and have given what they have
 * to: their ranks, and how many they are; `call` says what they are in. Else 0. */
uint32_t deadlock_list_blocked(const struct job *job, const struct job_wait *wait,
                               uint32_t ranks[LIMIT_LOCAL], char call[CALL_TEXT]);
