/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the fake NCCL. See reduce.h. */
#include "reduce.h"

#include <string.h>

#include "proto/nccl.h"
#include "tests/unit/halves.h"

/* X(number, name, type of an element) */
#define TYPES(X)                                                                                             \
        X(NCCL_UINT8, uint8, uint8_t)                                                                        \
        X(NCCL_INT32, int32, int32_t)                                                                        \
        X(NCCL_INT64, int64, int64_t)                                                                        \
        X(NCCL_UINT64, uint64, uint64_t)                                                                     \
        X(NCCL_FLOAT16, float16, uint16_t)                                                                   \
        X(NCCL_BFLOAT16, bfloat16, uint16_t)                                                                 \
        X(NCCL_FLOAT32, float32, float)                                                                      \
        X(NCCL_FLOAT64, float64, double)

size_t reduce_size(int type) {
        switch (type) {
#define SIZE(number, name, element)                                                                          \
        case number: return sizeof(element);
                TYPES(SIZE)
        default: return 0;
        }
}

/* ---- operations ---- */

/* An integer is computed without its sign where that makes no difference: it wraps. */
#define COMBINE(name, type, wide, greater, less)                                                             \
        static type combine_##name(type a, type b, int operation) {                                          \
                switch (operation) {                                                                         \
                case NCCL_SUM: return (type)((wide)a + (wide)b);                                             \
                case NCCL_PROD: return (type)((wide)a * (wide)b);                                            \
                case NCCL_MAX: return greater(a, b);                                                         \
                default: return less(a, b);                                                                  \
                }                                                                                            \
        }
#define GREATER(a, b) ((a) > (b) ? (a) : (b))
#define LESS(a, b) ((a) < (b) ? (a) : (b))
COMBINE(uint8, uint8_t, uint64_t, GREATER, LESS)
COMBINE(int32, int32_t, uint64_t, GREATER, LESS)
COMBINE(int64, int64_t, uint64_t, GREATER, LESS)
COMBINE(uint64, uint64_t, uint64_t, GREATER, LESS)
COMBINE(float32, float, float, fmaxf, fminf)
COMBINE(float64, double, double, fmax, fmin)

static uint16_t combine_half(const struct half *half, uint16_t a, uint16_t b, int operation) {
        return half_bits(half,
                         combine_float32((float)half_value(half, a), (float)half_value(half, b), operation));
}

static uint16_t combine_float16(uint16_t a, uint16_t b, int operation) {
        return combine_half(&halves[0], a, b, operation);
}

static uint16_t combine_bfloat16(uint16_t a, uint16_t b, int operation) {
        return combine_half(&halves[1], a, b, operation);
}

/* One loop for each operation, which is a constant in it: it becomes vector instructions. */
#define LOOP(name, operation)                                                                                \
        case operation:                                                                                      \
                for (size_t i = 0; i < count; i++)                                                           \
                        to[i] = combine_##name(to[i], from[i], operation);                                   \
                break;
#define REDUCE(number, name, element)                                                                        \
        static void reduce_##name(element *restrict to, const void *const *in, unsigned n, size_t count,     \
                                  int operation) {                                                           \
                memcpy(to, in[0], count * sizeof(element));                                                  \
                for (unsigned r = 1; r < n; r++) {                                                           \
                        const element *restrict from = in[r];                                                \
                        switch (operation) {                                                                 \
                                LOOP(name, NCCL_SUM)                                                         \
                                LOOP(name, NCCL_PROD)                                                        \
                                LOOP(name, NCCL_MAX)                                                         \
                                LOOP(name, NCCL_MIN)                                                         \
                        }                                                                                    \
                }                                                                                            \
        }
TYPES(REDUCE)

void reduce(void *to, const void *const *in, unsigned n, size_t count, int type, int operation) {
        switch (type) {
#define CASE(number, name, element)                                                                          \
        case number: reduce_##name(to, in, n, count, operation); break;
                TYPES(CASE)
        }
}
