/* SPDX-License-Identifier: Apache-2.0 */
/* struct sync: a gradsync_sync_state() that is under way. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/standing.h"

/* What each member says of its state, as bytes on the wire. */
struct sync_entry {
        struct tag tag;
        /* Digest of how many steps of each plan are in it. */
        uint64_t plans;
        /* As the trainer counts. */
        uint64_t step;
        /* Of the number and sizes of its buffers. */
        uint64_t digest;
        /* Of all buffers. */
        uint64_t bytes;
        /* STANDING_… */
        uint64_t claims;
};

struct sync {
        bool gathered;
        /* The generation in which that was, and the place in it. What follows belongs to it, too. */
        uint32_t generation, rank, world;
        /* `all` by rank; NULL: none is under way. */
        struct sync_entry mine, *all;
        uint32_t source;
        bool transfer, receive;
        /* The next buffer. */
        uint32_t at;
};

/* Frees what has been gathered. */
void sync_end(struct sync *sync);
