/* SPDX-License-Identifier: Apache-2.0 */
/* struct wish: what was asked for at join, options and environment put together. */
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
        /* WIRE__SCOPE__…; NONE: as the daemon is configured. */
        unsigned scope;
        /* Of each plan; 0: none. */
        uint64_t timeout_ms;
        /* Of the join; 0: none. */
        uint64_t join_ms;
        uint64_t last_call_ms;
        /* Negative: the daemon's. */
        int64_t rejoin_grace_ms;
        /* "": none. */
        char token[LIMIT_TOKEN + 1];
};

/* OK, or INVALID with the text. `standalone`: of a handle without a daemon, whose process is a job of
 * its own if nothing names another one. */
int wish_make(struct wish *wish, const struct gradsync_join_options *options, bool standalone);
