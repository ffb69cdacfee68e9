/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans launches: which kernel a combination needs, the argument of the kernel, and the meaning of its
 * results. Pure: calls no driver. The caller adds parts to a launch as long as they fit, gives the launch to
 * the driver, and reads the results when it has ended.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "grid.h"

extern const char *const launch_names[GRID_KERNELS];

/* One combination, as in backend.h. All addresses are the device's, and multiples of the element's size. */
struct launch_part {
        unsigned dtype, reduce;
        uint32_t divisor;
        uint64_t elements;
        unsigned n_inputs, n_outputs;
        const uint64_t *inputs, *outputs;
        bool statistics, find;
};

struct launch {
        unsigned kernel; /* enum grid_kernel */
        uint32_t n_addresses, scratch_words, result_words;
        struct grid_launch grid;
};

/* Returns the kernel for a combination, or -1 if there is no such combination. */
int launch_kernel(const struct launch_part *part);
/* Return the words of scratch memory, and of results, that the part needs on its own. */
uint64_t launch_scratch_words(const struct launch_part *part);
uint32_t launch_result_words(const struct launch_part *part);

/* Makes an empty launch of this kernel. */
void launch_init(struct launch *launch, unsigned kernel);
/* Adds a part to a launch. False if the part needs another kernel, or there is no room for it in the launch,
 * or in so many words. The first part of a launch always fits, if the words do. */
bool launch_add(struct launch *launch, const struct launch_part *part, uint64_t scratch_words,
                uint32_t result_words);
/* Returns the number of blocks to launch: at most `cap`, unless that is 0. */
unsigned launch_blocks(const struct launch *launch, unsigned cap);
