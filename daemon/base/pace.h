/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits how fast one user opens connections. To greet a connection costs the event thread many times what it
 * costs the client to open it, so a loop in one user's program could keep the thread from the steps of all
 * others. Pure: the caller passes the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct pace {          /* zero-initialised: this user has not come yet */
        uint64_t last; /* when it last asked, in microseconds */
        double left;   /* connections that it may open now */
};

/* Whether this user may open one more connection. It may open `rate` of them at once, and as many in each
 * second. */
bool pace_admits(struct pace *pace, uint64_t rate, uint64_t now);
/* Whether this user may go as fast as one that has not come yet. */
bool pace_is_full(const struct pace *pace, uint64_t now);
