/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts samples of a latency into words.
 */
#include "latency.h"

#include "clock.h"

static double latency_us(int64_t ns) {
        return (double)ns / 1e3;
}

double latency_note(struct actor *actor, const char *what, int64_t *samples, size_t n) {
        double median;

        samples_sort(samples, n);
        median = latency_us(samples_percentile(samples, n, 50));
        actor_note(actor, "%s: p50 %.1f us, p99 %.1f us, worst %.1f us of %zu", what, median,
                   latency_us(samples_percentile(samples, n, 99)), latency_us(samples[n - 1]), n);
        return median;
}
