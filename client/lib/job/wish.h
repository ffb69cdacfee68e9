/* SPDX-License-Identifier: Apache-2.0 */
/* struct wish: the options of a join, with the values of the environment where they leave a field open. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gradsync/gradsync.h"
#include "proto/frame.h"

struct wish {
        char name[LIMIT_NAME + 1];
        uint32_t min_world, max_world;
        int64_t rank, local_rank, incarnation;
        /* Number of processes that this rank has had before; negative: not given. */
        int64_t instance;
        bool spare, sequential;
        /* A Wire__Scope; NONE: as the daemon is configured. */
        unsigned scope;
        /* Time-out of each plan; 0: none. */
        uint64_t timeout_ms;
        /* Time-out of the join; 0: none. */
        uint64_t join_ms;
        uint64_t last_call_ms;
        /* Negative: the daemon's setting. */
        int64_t rejoin_grace_ms;
        /* "": none. */
        char token[LIMIT_TOKEN + 1];
};

/* Makes the wish of a join. OK, or INVALID with the text. `standalone`: the handle has no daemon, so its
 * process is a job of its own unless another one is named. */
int wish_make(struct wish *wish, const struct gradsync_join_options *options, bool standalone);
