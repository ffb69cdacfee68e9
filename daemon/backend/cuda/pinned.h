/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pinned memory of the host. To give it back waits for all that the GPU is doing, and a kernel of NCCL may
 * wait there for another node, which waits likewise: so it is kept for whoever wants as much next, until the
 * daemon ends. For one thread.
 */
#pragma once

#include <stddef.h>

#include "base/list.h"
#include "proto/cuda.h"

struct pinned {
        struct list blocks; /* of nobody */
};

struct pinned_block {
        struct list link;
        void *address; /* of the device and of the host */
        size_t bytes;  /* a power of two, at least a page */
};

void pinned_init(struct pinned *pinned);
/* At least so many bytes, of any content. */
cuda_result pinned_take(struct pinned *pinned, const struct cuda *cuda, size_t bytes,
                        struct pinned_block **ret);
/* NULL is fine. */
void pinned_leave(struct pinned *pinned, struct pinned_block *block);
/* All that nobody has. */
void pinned_deinit(struct pinned *pinned, const struct cuda *cuda);
