/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast each uid opens connections. To greet one costs the event thread many times what it costs to open
 * it, so a loop in one user's program could keep the thread from the steps of all others. Pure: the time
 * comes in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PACE_PLACES 64u

struct pace { /* zero-initialised: nobody has come yet */
        struct pace_place {
                bool used;
                uid_t uid;
                uint64_t last; /* when it came for the last time, in microseconds */
                double left;   /* connections that it may open now */
        } place[PACE_PLACES];
};

/* Whether this uid may open one more connection: `rate` of them at once, and as many in each second. */
bool pace_admits(struct pace *pace, uid_t uid, uint64_t rate, uint64_t now);
