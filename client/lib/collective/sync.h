/* SPDX-License-Identifier: Apache-2.0 */
/* struct sync: a gradsync_sync_state() that is under way. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/standing.h"

struct sync_entry { /* what each member says of its state, as bytes on the wire */
        struct tag tag;
        uint64_t plans;  /* digest of how many steps of each plan are in it */
        uint64_t step;   /* as the trainer counts */
        uint64_t digest; /* of the number and sizes of its buffers */
        uint64_t bytes;  /* of all of them */
        uint64_t claims; /* STANDING_… */
};

struct sync {
        bool gathered;
        uint32_t generation, rank, world; /* in which that was: what follows belongs to it, too */
        struct sync_entry mine, *all;     /* `all` by rank; NULL: none is under way */
        uint32_t source;
        bool transfer, receive;
        uint32_t at; /* the next buffer */
};

/* What has been gathered goes. */
void sync_end(struct sync *sync);
