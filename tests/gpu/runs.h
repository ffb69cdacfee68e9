/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a kernel ran, by the gaps that it has noted: see "gaps" in kernels.c. All times are those of the GPU's
 * clock, in nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        RUNS_GAPS = 4096,                   /* that a kernel can note */
        RUNS_RECORD = 4 + 2 * RUNS_GAPS,    /* words of its record */
        RUNS_SAMPLES = 2 * (RUNS_GAPS + 1), /* of two kernels, at most */
};

struct run {
        uint64_t begin, end;
};

struct runs {
        struct run run[RUNS_GAPS + 1];
        unsigned n;
        uint64_t begin, end;
};

/* Reads a record. Returns whether it makes sense. */
bool runs_read(struct runs *runs, const uint64_t *record);

/* For how long both ran, of the time [from, to). */
uint64_t runs_common(const struct runs *a, const struct runs *b, uint64_t from, uint64_t to);

/* For how long one ran, of the time [from, to). The lengths of its runs that lie whole within are appended to
 * the n samples. */
uint64_t runs_alone(const struct runs *runs, uint64_t from, uint64_t to, int64_t *samples, size_t *n);
