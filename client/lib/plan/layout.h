/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct layout: the bucket of each parameter, its place in the arena (or in registered memory, where the
 * trainer put it), and the order in which buckets are launched. Pure: the same parameters and limits give the
 * same layout on every member, and the daemon compares the layouts.
 */
#pragma once

#include <stdint.h>

#include "client/lib/plan/params.h"

struct layout_bucket {
        unsigned dtype;
        /* Its parameters: layout.order[first … first + n), in registration order. */
        uint32_t first, n;
        /* The registered memory in which it lies; NULL: in the arena. */
        struct gradsync_memory *memory;
        /* Offset of its first byte: in the arena a multiple of ARENA_PAGE, elsewhere of ARENA_ALIGN. */
        uint64_t offset;
        /* Bytes from there to the end of its last parameter. */
        uint64_t bytes;
        /* Bytes of its parameters, without the padding between them. */
        uint64_t payload;
};

struct layout {
        uint32_t n_params, n_buckets;
        /* The buckets in launch order. */
        struct layout_bucket *bucket;
        /* Numbers of all parameters, bucket by bucket. */
        uint32_t *order;
        /* Per parameter: its bucket. */
        uint32_t *bucket_of;
        /* Per parameter: its position in its bucket. */
        uint32_t *place;
        /* Per parameter: its offset in the arena, or in its memory. */
        uint64_t *offset;
        uint64_t control_bytes; /* size of the control memory, for the diagnosis pages */
        /* 0: all parameters lie in registered memory. */
        uint64_t arena_bytes;
        uint64_t payload;
};

/* Lays the parameters out. GRADSYNC_OK; STATE if there are no parameters, INVALID or NO_MEMORY, with
 * the text. */
int layout_init(struct layout *layout, const struct params *params, uint64_t first_bucket_bytes,
                uint64_t bucket_bytes);
void layout_deinit(struct layout *layout);
