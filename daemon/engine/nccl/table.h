/* SPDX-License-Identifier: Apache-2.0 */
/* The table that each rank of a communicator gives the others before the communicator is made: bytes of a
 * fixed layout, with little-endian numbers. It goes over the authenticated link between daemons, and nowhere
 * else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/nccl.h"

#define TABLE_HOST 65u
#define TABLE_OLDER 512u

/* How a communicator is made: anew, or of the older one; see reform.h. */
enum reform { REFORM_NONE, REFORM_SHRINK, REFORM_GROW };

struct table {
        int version; /* version of the rank's NCCL */
        char uuid[CUDA_UUID_TEXT];
        char host[TABLE_HOST]; /* nccl_engine_config.host, cut to that length */
        bool has_id;           /* rank 0 has one, also if it is not needed */
        struct nccl_id id;
        enum reform reform;      /* rank 0's counts for all ranks */
        bool shrinks, grows;     /* whether the rank's NCCL does that */
        char older[TABLE_OLDER]; /* name of a communicator that it has and that may be used; "" if none */
        uint32_t n_older;        /* number of nodes of that one */
};

/* Ranks agree, when a communicator is made, whether sums of floats go through windows, if they have at most
 * TABLE_PANE bytes. */
#define TABLE_PANE (256u << 10)
#define TABLE_BYTES                                                                                          \
        (8 + 4 + CUDA_UUID_TEXT + TABLE_HOST + 1 + sizeof(struct nccl_id) + 1 + 1 + TABLE_OLDER + 4)

void table_put(const struct table *table, unsigned char to[TABLE_BYTES]);
/* Reads a table. False if it is none. */
bool table_get(struct table *ret, const void *from, size_t bytes);
