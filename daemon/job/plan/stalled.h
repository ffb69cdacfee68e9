/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notice of a wait in the open step of a plan, or in the open operation. It is remembered so that members
 * and log hear of a wait once, and so that the log says how long the wait was when the step or operation has
 * ended. If that comes to nothing, the log has the line about the loss instead.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;

struct stalled {
        bool told; /* members here have had a notice */
        /* The step whose wait is in the log, or one more than the operation's number; 0: none. */
        uint64_t number;
        uint32_t generation; /* in which it was begun: it comes to nothing with it */
        uint64_t since;      /* clock_now() at which that wait began */
        char whom[160];      /* "rank 1 (pid 4242) and 2 more" */
};

/* The step or operation has ended well. `what` names it: "step 12". Logs nothing if the wait was not logged.
 * While `number` is 0, no call is needed. */
void stalled_end(struct stalled *stalled, const struct job *job, uint64_t number, const char *what);
