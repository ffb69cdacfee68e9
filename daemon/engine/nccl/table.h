/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank of a communicator tells the others before it is made: bytes of a fixed layout, of numbers
 * little-endian. It goes over the authenticated link between daemons, and nowhere else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "proto/nccl.h"

#define TABLE_HOST 65u

struct table {
        int version; /* of its NCCL */
        char uuid[CUDA_UUID_TEXT];
        char host[TABLE_HOST]; /* cut to that length */
        bool has_id;           /* of rank 0 */
        struct nccl_id id;
};

#define TABLE_BYTES (8 + 4 + CUDA_UUID_TEXT + TABLE_HOST + 1 + sizeof(struct nccl_id))

void table_put(const struct table *table, unsigned char to[TABLE_BYTES]);
/* False: this is none. */
bool table_get(struct table *ret, const void *from, size_t bytes);
