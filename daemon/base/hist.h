/* SPDX-License-Identifier: Apache-2.0 */
/* The recent past of a duration: a window of the last values, with their median and their rate. No
 * allocation. */
#pragma once

#include <stdint.h>

#define HIST_WINDOW 64u

struct hist { /* zero-initialised: empty */
        uint64_t value[HIST_WINDOW];
        uint64_t at[HIST_WINDOW];
        unsigned next, used;
};

void hist_add(struct hist *hist, uint64_t value, uint64_t now);
/* 0 while empty; lower median for an even number */
uint64_t hist_median(const struct hist *hist);
/* Events per second over the window, up to `now`: falls towards 0 while nothing is added. 0 with fewer
 * than 2 values. */
double hist_rate(const struct hist *hist, uint64_t now);
