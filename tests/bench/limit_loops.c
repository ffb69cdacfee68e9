/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of limit_peer.c, apart so that they can be compiled for the very machine they measure. They go
 * block by block: all reads of a block, then all its writes, which is never slower than the textbook loop.
 */
#include "limit_loops.h"

#include <string.h>

#define BLOCK 128u /* elements */

#define INLINE inline __attribute__((always_inline))

static INLINE void reduce(float *const *buffer, unsigned members, size_t n, float scale) {
        _Alignas(64) float sum[BLOCK];
        for (size_t from = 0; from < n; from += BLOCK) {
                size_t count = n - from < BLOCK ? n - from : BLOCK;
                for (size_t i = 0; i < count; i++) {
                        float value = buffer[0][from + i] * scale;
                        for (unsigned m = 1; m < members; m++)
                                value += buffer[m][from + i] * scale;
                        sum[i] = value;
                }
                for (size_t i = 0; i < count; i += 16)
                        for (unsigned m = 0; m < members; m++)
                                memcpy(buffer[m] + from + i, sum + i, 16 * sizeof *sum);
        }
}

/* The usual counts as constants, so that the inner loops vanish. */
void loop_reduce(float *const *buffer, unsigned members, size_t n, float scale) {
        if (members == 2)
                reduce(buffer, 2, n, scale);
        else if (members == 4)
                reduce(buffer, 4, n, scale);
        else
                reduce(buffer, members, n, scale);
}

void loop_scale(float *buffer, size_t n, float scale) {
        reduce(&buffer, 1, n, scale);
}

void loop_copy(float *restrict to, const float *restrict from, size_t n) {
        memcpy(to, from, n * sizeof *to);
}
