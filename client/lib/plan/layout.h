/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bucket each parameter goes to, where it lies in the arena (or in registered memory, where the trainer
 * put it), and in which order buckets are launched. Pure: the same parameters and limits give the same layout
 * on every member, which is what the daemon compares.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/plan/params.h"

struct layout_bucket {
        unsigned dtype;
        /* Its parameters: layout.order[first … first + n), in registration order. */
        uint32_t first, n;
        /* In which it lies; NULL: in the arena. */
        struct gradsync_memory *memory;
        /* Of its first byte: in the arena a multiple of ARENA_PAGE, elsewhere of ARENA_ALIGN. */
        uint64_t offset;
        /* From there to the end of its last parameter. */
        uint64_t bytes;
        /* Without the padding between parameters. */
        uint64_t payload;
};

struct layout {
        uint32_t n_params, n_buckets;
        /* In launch order. */
        struct layout_bucket *bucket;
        /* Numbers of all parameters, bucket by bucket. */
        uint32_t *order;
        /* Per parameter. */
        uint32_t *bucket_of;
        /* Per parameter: its position in its bucket. */
        uint32_t *place;
        /* Per parameter: in the arena, or in its memory. */
        uint64_t *offset;
        /* Of the diagnosis pages at the start of the arena, or of a control memory; the other one is 0. */
        uint64_t diagnosis_bytes, control_bytes;
        /* 0: all parameters lie in registered memory. */
        uint64_t arena_bytes;
        uint64_t payload;
};

/* With a control memory, or without. GRADSYNC_OK, INVALID or NO_MEMORY with the text. */
int layout_init(struct layout *layout, const struct params *params, uint64_t first_bucket_bytes,
                uint64_t bucket_bytes, bool control);
/* Gives each parameter another place for that. GRADSYNC_OK, or INVALID with the text. */
int layout_place(struct layout *layout, const struct params *params, bool control);
void layout_deinit(struct layout *layout);
