/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of parameters that a trainer registers before it makes a plan: names that are unique, shapes that
 * can be counted. Pure; order of registration is the index by which the trainer names a parameter from then
 * on.
 */
#pragma once

#include <stdint.h>

#include "proto/frame.h"

struct gradsync_memory;

struct param {
        char *name;
        /* WIRE__DTYPE__… */
        unsigned dtype;
        uint32_t dims;
        uint64_t shape[LIMIT_DIMS];
        uint64_t bytes;
        /* In which it lies at `offset`; NULL: in the arena. */
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

/* `memory`: in which registered memory it lies, NULL: in the arena. The offset has been checked, but not
 * whether all of the parameter fits. GRADSYNC_OK, or INVALID, NO_MEMORY with the text; the list is
 * unchanged then. */
int params_add(struct params *params, const char *name, unsigned dtype, uint32_t dims, const uint64_t *shape,
               struct gradsync_memory *memory, uint64_t offset);
/* And empty again. */
void params_deinit(struct params *params);
