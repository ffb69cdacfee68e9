/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank of a communicator tells the others before it is made: bytes of a fixed layout, of numbers
 * little-endian. It goes over the authenticated link between daemons, and nowhere else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/nccl.h"

#define TABLE_HOST 65u
#define TABLE_OLDER 512u

/* See way.h. */
enum way { WAY_INIT, WAY_SHRINK, WAY_GROW };

struct table {
        int version; /* of its NCCL */
        char uuid[CUDA_UUID_TEXT];
        char host[TABLE_HOST]; /* cut to that length */
        bool has_id;           /* of rank 0, also where the way needs none */
        struct nccl_id id;
        /* From the dialect TABLE_WAYS on; before it all communicators are made by WAY_INIT. */
        enum way way;            /* of rank 0: the one that all are to go */
        bool shrinks, grows;     /* its NCCL does */
        char older[TABLE_OLDER]; /* name of a communicator that it has and that may be used; "": none */
        uint32_t n_older;        /* nodes of that one */
};

#define TABLE_WAYS 2u /* 0 and 1 are the same to NCCL: see both.c */
/* From this one on ranks agree, when a communicator is made, whether sums of floats go through windows: such
 * of at most TABLE_PANE bytes. */
#define TABLE_WINDOWS 3u
#define TABLE_PANE (256u << 10)
#define TABLE_BYTES                                                                                          \
        (8 + 4 + CUDA_UUID_TEXT + TABLE_HOST + 1 + sizeof(struct nccl_id)) /* of the first layout */
#define TABLE_BYTES_AT_MOST (TABLE_BYTES + 1 + 1 + TABLE_OLDER + 4)

/* In the layout of that dialect. Returns how many bytes it has. */
size_t table_put(const struct table *table, uint32_t dialect, unsigned char to[TABLE_BYTES_AT_MOST]);
/* In either layout. False: this is none. */
bool table_get(struct table *ret, const void *from, size_t bytes);
