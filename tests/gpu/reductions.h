/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions of reductions.c. Each is asked of an open GPU and answers in one row: "yes" or "no" where
 * something must hold, "skipped" where it could not be asked, else what was measured.
 */
#pragma once

#include "device.h"

struct question;

struct finding {
        char answer[96], detail[2048];
};

typedef void ask_fn(struct device *device, const struct question *question, struct finding *finding);

struct question {
        char name[48];
        ask_fn *ask;
        unsigned dtype, reduce, k;
        size_t bytes; /* of each input */
        bool small;   /* as little as shows that it works: a GPU that is not real */
};

void find_answer(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends to the detail. */
void find_note(struct finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- reductions_bits.c: the same bits as the same kernels on the host ---- */

/* Random bits; `tame`: finite floats near 1, as of gradients. */
void type_fill(unsigned dtype, bool tame, void *to, size_t bytes);

ask_fn ask_values, ask_conversions, ask_statistics, ask_find, ask_kernels;

/* ---- reductions_speed.c ---- */

ask_fn ask_bandwidth, ask_latency, ask_amortised;
