/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the fake NCCL. See reduce.h. */
#include "reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "proto/nccl.h"

size_t reduce_size(int type) {
        switch (type) {
        case NCCL_INT8:
        case NCCL_UINT8: return 1;
        case NCCL_FLOAT16:
        case NCCL_BFLOAT16: return 2;
        case NCCL_INT32:
        case NCCL_FLOAT32: return 4;
        case NCCL_INT64:
        case NCCL_UINT64:
        case NCCL_FLOAT64: return 8;
        default: return 0;
        }
}

/* ---- floats of 16 bits ---- */

static float bits_to_float(uint32_t bits) {
        float value;

        memcpy(&value, &bits, sizeof(value));
        return value;
}

static uint32_t float_to_bits(float value) {
        uint32_t bits;

        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

static float bfloat_to_float(uint16_t value) {
        return bits_to_float((uint32_t)value << 16);
}

static uint16_t float_to_bfloat(float value) {
        uint32_t bits = float_to_bits(value);

        if (isnan(value))
                return 0x7fff;
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float half_to_float(uint16_t value) {
        uint32_t sign = (uint32_t)(value & 0x8000) << 16, exponent = value >> 10 & 0x1f,
                 fraction = value & 0x3ff;

        if (exponent == 0)
                return (sign != 0 ? -1.0F : 1.0F) * ldexpf((float)fraction, -24);
        if (exponent == 0x1f)
                return bits_to_float(sign | 0x7f800000 | fraction << 13);
        return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}

static uint16_t float_to_half(float value) {
        uint16_t sign = (uint16_t)(float_to_bits(value) >> 16 & 0x8000);
        float size = fabsf(value);

        if (isnan(value))
                return 0x7fff;
        if (size >= 65520.0F)
                return sign | 0x7c00;
        if (size < 0x1p-14F) /* there the steps are all the same; nearbyintf() rounds ties to even */
                return (uint16_t)(sign | (uint16_t)nearbyintf(ldexpf(size, 24)));
        uint32_t bits = float_to_bits(size) - (112U << 23);
        return (uint16_t)(sign | (uint16_t)((bits + 0xfff + (bits >> 13 & 1)) >> 13));
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
COMBINE(int8, int8_t, uint64_t, GREATER, LESS)
COMBINE(uint8, uint8_t, uint64_t, GREATER, LESS)
COMBINE(int32, int32_t, uint64_t, GREATER, LESS)
COMBINE(int64, int64_t, uint64_t, GREATER, LESS)
COMBINE(uint64, uint64_t, uint64_t, GREATER, LESS)
COMBINE(float32, float, float, fmaxf, fminf)
COMBINE(float64, double, double, fmax, fmin)

static uint16_t combine_float16(uint16_t a, uint16_t b, int operation) {
        return float_to_half(combine_float32(half_to_float(a), half_to_float(b), operation));
}

static uint16_t combine_bfloat16(uint16_t a, uint16_t b, int operation) {
        return float_to_bfloat(combine_float32(bfloat_to_float(a), bfloat_to_float(b), operation));
}

#define REDUCE(name, type)                                                                                   \
        static void reduce_##name(type *to, const void *const *in, unsigned n, size_t count,                 \
                                  int operation) {                                                           \
                for (size_t i = 0; i < count; i++) {                                                         \
                        type value = ((const type *)in[0])[i];                                               \
                        for (unsigned r = 1; r < n; r++)                                                     \
                                value = combine_##name(value, ((const type *)in[r])[i], operation);          \
                        to[i] = value;                                                                       \
                }                                                                                            \
        }
REDUCE(int8, int8_t)
REDUCE(uint8, uint8_t)
REDUCE(int32, int32_t)
REDUCE(int64, int64_t)
REDUCE(uint64, uint64_t)
REDUCE(float16, uint16_t)
REDUCE(bfloat16, uint16_t)
REDUCE(float32, float)
REDUCE(float64, double)

void reduce(void *to, const void *const *in, unsigned n, size_t count, int type, int operation) {
        switch (type) {
        case NCCL_INT8: reduce_int8(to, in, n, count, operation); break;
        case NCCL_UINT8: reduce_uint8(to, in, n, count, operation); break;
        case NCCL_INT32: reduce_int32(to, in, n, count, operation); break;
        case NCCL_INT64: reduce_int64(to, in, n, count, operation); break;
        case NCCL_UINT64: reduce_uint64(to, in, n, count, operation); break;
        case NCCL_FLOAT16: reduce_float16(to, in, n, count, operation); break;
        case NCCL_BFLOAT16: reduce_bfloat16(to, in, n, count, operation); break;
        case NCCL_FLOAT32: reduce_float32(to, in, n, count, operation); break;
        default: reduce_float64(to, in, n, count, operation); break;
        }
}
