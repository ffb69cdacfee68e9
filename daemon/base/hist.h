/* SPDX-License-Identifier: Apache-2.0 */
/* Recent values of a duration: a window of the last ones, with their median and their rate. No allocation. */
#pragma once

#include <stdint.h>

#define HIST_WINDOW 64u

struct hist { /* zero-initialised: empty */
        uint64_t value[HIST_WINDOW];
        uint64_t at[HIST_WINDOW];
        unsigned next, used;
};

void hist_add(struct hist *hist, uint64_t value, uint64_t now);
/* Returns the median, for an even number of values the lower one; 0 while empty. */
uint64_t hist_median(const struct hist *hist);
/* Returns the events per second over the window, up to `now`. The rate falls towards 0 while nothing is
 * added, and is 0 with fewer than 2 values. */
double hist_rate(const struct hist *hist, uint64_t now);
