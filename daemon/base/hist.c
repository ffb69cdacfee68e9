/* SPDX-License-Identifier: Apache-2.0 */
/* Median and rate over a fixed window. Pure. */
#include "hist.h"

#include <stdlib.h>
#include <string.h>

void hist_add(struct hist *hist, uint64_t value, uint64_t now) {
        hist->value[hist->next] = value;
        hist->at[hist->next] = now;
        hist->next = (hist->next + 1) % HIST_WINDOW;
        if (hist->used < HIST_WINDOW)
                hist->used++;
}

static int hist_compare(const void *left, const void *right) {
        uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
        return (a > b) - (a < b);
}

uint64_t hist_median(const struct hist *hist) {
        uint64_t sorted[HIST_WINDOW];

        if (hist->used == 0)
                return 0;
        memcpy(sorted, hist->value, hist->used * sizeof(sorted[0]));
        qsort(sorted, hist->used, sizeof(sorted[0]), hist_compare);
        return sorted[(hist->used - 1) / 2];
}

double hist_rate(const struct hist *hist, uint64_t now) {
        uint64_t oldest = hist->at[hist->used < HIST_WINDOW ? 0 : hist->next];

        if (hist->used < 2 || now <= oldest)
                return 0;
        return (double)(hist->used - 1) * 1e6 / (double)(now - oldest);
}
