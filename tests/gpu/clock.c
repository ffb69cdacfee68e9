/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe's clock and its percentiles.
 */
#include "clock.h"

#include <stdlib.h>
#include <time.h>

int64_t clock_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int samples_compare(const void *a, const void *b) {
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

        return (x > y) - (x < y);
}

void samples_sort(int64_t *samples, size_t n) {
        qsort(samples, n, sizeof *samples, samples_compare);
}

int64_t samples_percentile(const int64_t *samples, size_t n, unsigned percent) {
        size_t rank = (n * percent + 99) / 100;

        return samples[rank > 0 ? rank - 1 : 0];
}
