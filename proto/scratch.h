/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a decoder: one block of fixed size, from which protobuf-c takes the memory for a message, and
 * which forgets everything at once. The size of each allocation stands before it, because protobuf-c does not
 * keep the length of a string.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SCRATCH_ALIGN 16u

struct scratch {
        ProtobufCAllocator allocator;
        uint8_t *buffer; /* `size` bytes, aligned to SCRATCH_ALIGN */
        size_t size, used;
};

/* NULL: it does not fit, and nothing fits any more until scratch_begin(). */
static inline void *scratch_alloc(void *data, size_t size) {
        struct scratch *scratch = data;
        size_t need = (size + 2 * SCRATCH_ALIGN - 1) & ~(size_t)(SCRATCH_ALIGN - 1);
        uint8_t *at;

        if (need < size || scratch->used > scratch->size || need > scratch->size - scratch->used) {
                scratch->used = scratch->size + 1;
                return NULL;
        }
        at = scratch->buffer + scratch->used;
        scratch->used += need;
        memcpy(at, &size, sizeof(size));
        return at + SCRATCH_ALIGN;
}

static inline void scratch_free(void *data, void *pointer) {}

/* The size that the allocation was made for. */
static inline size_t scratch_size(const void *pointer) {
        size_t size;

        memcpy(&size, (const uint8_t *)pointer - SCRATCH_ALIGN, sizeof(size));
        return size;
}

/* Forgets all allocations. */
static inline ProtobufCAllocator *scratch_begin(struct scratch *scratch) {
        scratch->used = 0;
        scratch->allocator = (ProtobufCAllocator){ scratch_alloc, scratch_free, scratch };
        return &scratch->allocator;
}

static inline bool scratch_exhausted(const struct scratch *scratch) {
        return scratch->used > scratch->size;
}
