/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has been said of a wait in the open step of a plan, or in the open operation: so that it is said once,
 * and that the log says how long it was when what was waited for has come to its end. One that comes to
 * nothing has the line about the loss instead.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;

struct stalled {
        bool told; /* members here have had a notice */
        /* Of the step whose wait is in the log, or one more than that of the operation; 0: none. */
        uint64_t number;
        uint32_t generation; /* in which it was begun: it comes to nothing with it */
        uint64_t since;      /* clock_now() at which that wait began */
        char whom[160];      /* "rank 1 (pid 4242) and 2 more" */
};

/* The step or operation has ended well. `what` it is: "step 12". Nothing is logged if its wait was not. While
 * `number` is 0 there is nothing to call for. */
void stalled_end(struct stalled *stalled, const struct job *job, uint64_t number, const char *what);
