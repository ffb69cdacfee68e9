/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast one user opens connections. To greet one costs the event thread many times what it costs to open
 * it, so a loop in one user's program could keep the thread from the steps of all others. Pure: the time
 * comes in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {          /* zero-initialised: this user has not come yet */
        uint64_t last; /* when it came for the last time, in microseconds */
        double left;   /* connections that it may open now */
};

/* Whether this user may open one more connection: `rate` of them at once, and as many in each second. */
bool pace_admits(struct pace *pace, uint64_t rate, uint64_t now);
/* Whether it may go as fast as one that has not come yet. */
bool pace_is_full(const struct pace *pace, uint64_t now);
