/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of parameters that a trainer registers before it makes a plan: names that are unique, shapes that
 * can be counted. The trainer names a parameter by its number in the order of registration from then on.
 * Pure.
 */
#pragma once

#include <stdint.h>

#include "proto/frame.h"

struct gradsync_memory;

struct param {
        char *name;
        /* A Wire__Dtype. */
        unsigned dtype;
        uint32_t dims;
        uint64_t shape[LIMIT_DIMS];
        uint64_t bytes;
        /* The registered memory in which it lies, at `offset`; NULL: in the arena. */
        struct gradsync_memory *memory;
        uint64_t offset;
};

struct params {
        struct param *list;
        uint32_t n, room;
        /* Open addressing by name: number of a parameter plus one; 0: free. */
        uint32_t *index;
        /* A power of two, more than twice n. */
        uint32_t index_size;
};

/* Adds a parameter. `memory` is the registered memory in which it lies; NULL: the arena. The caller has
 * checked the offset, but not whether all of the parameter fits. GRADSYNC_OK, or INVALID, NO_MEMORY with the
 * text; the list is unchanged then. */
int params_add(struct params *params, const char *name, unsigned dtype, uint32_t dims, const uint64_t *shape,
               struct gradsync_memory *memory, uint64_t offset);
/* Frees the parameters; the list is empty again. */
void params_deinit(struct params *params);
