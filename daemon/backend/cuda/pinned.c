/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cuda/pinned.h"

#include <stdlib.h>

#define LEAST 4096u /* bytes */

void pinned_init(struct pinned *pinned) {
        list_init(&pinned->blocks);
}

static struct pinned_block *pinned_find(const struct pinned *pinned, size_t bytes) {
        struct pinned_block *block;

        list_for_each(block, &pinned->blocks, link)
                if (block->bytes == bytes)
                        return block;
        return NULL;
}

cuda_result pinned_take(struct pinned *pinned, const struct cuda *cuda, size_t bytes,
                        struct pinned_block **ret) {
        size_t size = LEAST;

        while (size < bytes)
                size *= 2;
        *ret = pinned_find(pinned, size);
        if (*ret != NULL) {
                list_remove(&(*ret)->link);
                return CUDA_OK;
        }
        struct pinned_block *block = calloc(1, sizeof(*block));
        if (block == NULL)
                return CUDA_OUT_OF_MEMORY;
        block->bytes = size;
        cuda_result r = cuda->host_alloc(&block->address, size, CUDA_HOST_DEVICEMAP);
        if (r == CUDA_OK)
                *ret = block;
        else
                free(block);
        return r;
}

void pinned_leave(struct pinned *pinned, struct pinned_block *block) {
        if (block != NULL)
                list_append(&pinned->blocks, &block->link);
}

void pinned_deinit(struct pinned *pinned, const struct cuda *cuda) {
        while (!list_empty(&pinned->blocks)) {
                struct pinned_block *block = list_entry(pinned->blocks.next, struct pinned_block, link);

                list_remove(&block->link);
                cuda->host_free(block->address);
                free(block);
        }
}
