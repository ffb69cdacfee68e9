/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned memory of the host. To free it waits for all work of the GPU, and a kernel of NCCL may wait there
 * for another node, which waits likewise. So a block is kept for the next caller that wants as much, until
 * the daemon ends. For one thread.
 */
#pragma once

#include <stddef.h>

#include "base/list.h"
#include "proto/cuda.h"

struct pinned {
        struct list blocks; /* blocks that are not taken */
};

struct pinned_block {
        struct list link;
        void *address; /* address on the device and on the host */
        size_t bytes;  /* a power of two, at least a page */
};

void pinned_init(struct pinned *pinned);
/* Takes a block of at least so many bytes, of any content. */
cuda_result pinned_take(struct pinned *pinned, const struct cuda *cuda, size_t bytes,
                        struct pinned_block **ret);
/* Gives a block back. NULL is fine. */
void pinned_leave(struct pinned *pinned, struct pinned_block *block);
/* Frees all blocks that are not taken. */
void pinned_deinit(struct pinned *pinned, const struct cuda *cuda);
