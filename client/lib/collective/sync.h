/* SPDX-License-Identifier: Apache-2.0 */
/* struct sync: a gradsync_sync_state() that is under way. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/standing.h"

/* A member's description of its state, as bytes on the wire. */
struct sync_entry {
        struct tag tag;
        /* Digest of the numbers of steps, by plan, that are in the state. */
        uint64_t plans;
        /* Number of steps in the state, as the trainer counts. */
        uint64_t step;
        /* Digest of the number and sizes of the buffers. */
        uint64_t digest;
        /* Size of all buffers together. */
        uint64_t bytes;
        /* STANDING_HISTORY and STANDING_TORN. */
        uint64_t claims;
};

struct sync {
        /* The entries of all members are in `all`. */
        bool gathered;
        /* The generation in which they were gathered, and this member's place in it. The broadcasts belong to
         * the same generation. */
        uint32_t generation, rank, world;
        /* `all` is indexed by rank; NULL: no synchronisation is under way. */
        struct sync_entry mine, *all;
        /* The rank whose state all members get. */
        uint32_t source;
        /* The state is sent to some member; this member receives it. */
        bool transfer, receive;
        /* Index of the next buffer to send. */
        uint32_t at;
};

/* Frees the entries that were gathered. */
void sync_end(struct sync *sync);
