/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time as the probe measures it: CLOCK_MONOTONIC, in nanoseconds. And the order statistics of what was
 * measured.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

int64_t clock_ns(void);

/* Sorts `n` > 0 samples, in place. */
void samples_sort(int64_t *samples, size_t n);

/* The value that `percent` of the samples, which are sorted, do not exceed (nearest rank). */
int64_t samples_percentile(const int64_t *samples, size_t n, unsigned percent);
