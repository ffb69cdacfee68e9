/* SPDX-License-Identifier: Apache-2.0 */
/* Fills memory that a CPU writes with elements of one value, one after the other. Little-endian, like
 * arenas. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Fills `bytes` bytes. They are a multiple of `size`, which is at most the size of `bits`. */
static inline void fill_repeat(void *to, size_t bytes, uint64_t bits, size_t size) {
        unsigned char *start = to;
        size_t filled = bytes > 0 ? size : 0;

        memcpy(start, &bits, filled);
        for (size_t more = 0; filled < bytes; filled += more) {
                more = filled < bytes - filled ? filled : bytes - filled;
                memcpy(start + filled, start, more);
        }
}
