/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows: KERNEL_LANES elements in as many native vectors as that takes, so that the code above sees the same
 * lanes on all machines. Arithmetic uses the compiler's vector types. Intrinsics appear only for operations
 * that these types lack: f32 to f64, and the 16-bit float types, which are stored as uint16_t. Private to
 * kernel.c.
 */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "kernel/kernel.h"

/* The formatter knows neither the pragma that stands before loops nor one-line structs. */
/* clang-format off */

#define INLINE inline __attribute__((always_inline, unused))

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512BW__)
#define SIMD_BYTES 64
#elif defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)
#define SIMD_BYTES 32
#else
#define SIMD_BYTES 16
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef float vec_f __attribute__((vector_size(SIMD_BYTES)));
typedef double vec_d __attribute__((vector_size(SIMD_BYTES)));
typedef uint32_t vec_u __attribute__((vector_size(SIMD_BYTES)));
typedef int32_t mask_f __attribute__((vector_size(SIMD_BYTES)));
typedef int64_t mask_d __attribute__((vector_size(SIMD_BYTES)));
/* For loads and stores at any address, of any type. */
typedef float any_f __attribute__((vector_size(SIMD_BYTES), aligned(1), may_alias));
typedef double any_d __attribute__((vector_size(SIMD_BYTES), aligned(1), may_alias));

#define VECS_F (64 / SIMD_BYTES)
#define VECS_D (128 / SIMD_BYTES)

struct row_f { vec_f v[VECS_F]; };
struct row_u { vec_u v[VECS_F]; };
struct row_d { vec_d v[VECS_D]; };
/* Sixteen 16-bit values, packed. */
#if SIMD_BYTES == 64
struct row_h { __m256i v[1]; };
#elif defined(__SSE2__)
struct row_h { __m128i v[2]; };
#else
struct row_h { uint16_t v[16]; };
#endif

/* Loops over vectors or inputs must be unrolled completely, or values that should be in registers go through
 * memory. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* mask ? a : b, lane by lane */
static INLINE vec_u select_u(mask_f mask, vec_u a, vec_u b) {
#if SIMD_BYTES == 32
        return (vec_u)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)mask);
#else
        return ((vec_u)mask & a) | (~(vec_u)mask & b);
#endif
}

/* ---- loads and stores, vector by vector: copying a row as a whole would go through memory ---- */

static INLINE struct row_f row_get_f(const void *from) {
        struct row_f row;
        UNROLL for (unsigned i = 0; i < VECS_F; i++)
                row.v[i] = ((const any_f *)from)[i];
        return row;
}

static INLINE struct row_d row_get_d(const void *from) {
        struct row_d row;
        UNROLL for (unsigned i = 0; i < VECS_D; i++)
                row.v[i] = ((const any_d *)from)[i];
        return row;
}

static INLINE void row_put_f(void *to, struct row_f row) {
        UNROLL for (unsigned i = 0; i < VECS_F; i++)
                ((any_f *)to)[i] = row.v[i];
}

static INLINE void row_put_d(void *to, struct row_d row) {
        UNROLL for (unsigned i = 0; i < VECS_D; i++)
                ((any_d *)to)[i] = row.v[i];
}

/* ---- stores around the caches: to multiples of their size; no other thread may be told of them before a
 * fence ---- */

static INLINE void vec_stream(void *to, vec_u bits) {
#if SIMD_BYTES == 64
        _mm512_stream_si512((__m512i *)to, (__m512i)bits);
#elif SIMD_BYTES == 32
        _mm256_stream_si256((__m256i *)to, (__m256i)bits);
#elif defined(__SSE2__)
        _mm_stream_si128((__m128i *)to, (__m128i)bits);
#else
        memcpy(to, &bits, sizeof bits);
#endif
}

static INLINE void row_stream_f(void *to, struct row_f row) {
        UNROLL for (unsigned i = 0; i < VECS_F; i++)
                vec_stream((unsigned char *)to + i * SIMD_BYTES, (vec_u)row.v[i]);
}

static INLINE void row_stream_d(void *to, struct row_d row) {
        UNROLL for (unsigned i = 0; i < VECS_D; i++)
                vec_stream((unsigned char *)to + i * SIMD_BYTES, (vec_u)row.v[i]);
}

/* ---- f32 to f64, and sums of squares ---- */

static INLINE struct row_d row_widen(struct row_f from) {
        struct row_d to;
        UNROLL for (unsigned i = 0; i < VECS_F; i++) {
#if SIMD_BYTES == 64
                to.v[2 * i] = (vec_d)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)from.v[i]));
                to.v[2 * i + 1] = (vec_d)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)from.v[i], 1));
#elif SIMD_BYTES == 32
                to.v[2 * i] = (vec_d)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)from.v[i]));
                to.v[2 * i + 1] = (vec_d)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)from.v[i], 1));
#elif defined(__SSE2__)
                to.v[2 * i] = (vec_d)_mm_cvtps_pd((__m128)from.v[i]);
                to.v[2 * i + 1] = (vec_d)_mm_cvtps_pd(_mm_movehl_ps((__m128)from.v[i], (__m128)from.v[i]));
#else
                to.v[2 * i] = (vec_d){ from.v[i][0], from.v[i][1] };
                to.v[2 * i + 1] = (vec_d){ from.v[i][2], from.v[i][3] };
#endif
        }
        return to;
}

/* Products of two f32 are exact in f64, so fusing them with the addition changes no bit. */
static INLINE void row_square_f(struct row_d *sum, struct row_f value) {
        struct row_d wide = row_widen(value);
        UNROLL for (unsigned i = 0; i < VECS_D; i++) {
#if SIMD_BYTES == 64
                __m512d factor = (__m512d)wide.v[i];
                sum->v[i] = (vec_d)_mm512_fmadd_pd(factor, factor, (__m512d)sum->v[i]);
#elif SIMD_BYTES == 32
                __m256d factor = (__m256d)wide.v[i];
                sum->v[i] = (vec_d)_mm256_fmadd_pd(factor, factor, (__m256d)sum->v[i]);
#else
                sum->v[i] += wide.v[i] * wide.v[i];
#endif
        }
}

static INLINE void row_square_d(struct row_d *sum, struct row_d value) {
        UNROLL for (unsigned i = 0; i < VECS_D; i++)
                sum->v[i] += value.v[i] * value.v[i];
}

/* Lanes i and i+8, then i and i+4, and so on: whole vectors first, then within the last one. */
static INLINE double row_fold(const struct row_d *sum) {
        struct row_d row = *sum;
        UNROLL for (unsigned half = VECS_D / 2; half > 0; half /= 2)
                UNROLL for (unsigned i = 0; i < half; i++)
                        row.v[i] += row.v[i + half];
#if SIMD_BYTES == 64
        __m256d four = _mm256_add_pd(_mm512_castpd512_pd256((__m512d)row.v[0]),
                                     _mm512_extractf64x4_pd((__m512d)row.v[0], 1));
#elif SIMD_BYTES == 32
        __m256d four = (__m256d)row.v[0];
#endif
#if SIMD_BYTES >= 32
        __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
        return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
#else
        return row.v[0][0] + row.v[0][1];
#endif
}

/* ---- 16-bit integers in and out of 32-bit lanes ---- */

static INLINE struct row_h row_get_h(const void *from) {
        struct row_h row;
#if SIMD_BYTES == 64
        row.v[0] = _mm256_loadu_si256((const __m256i *)from);
#elif defined(__SSE2__)
        UNROLL for (unsigned i = 0; i < 2; i++)
                row.v[i] = _mm_loadu_si128((const __m128i *)from + i);
#else
        memcpy(&row, from, sizeof row);
#endif
        return row;
}

static INLINE void row_put_h(void *to, struct row_h row) {
#if SIMD_BYTES == 64
        _mm256_storeu_si256((__m256i *)to, row.v[0]);
#elif defined(__SSE2__)
        UNROLL for (unsigned i = 0; i < 2; i++)
                _mm_storeu_si128((__m128i *)to + i, row.v[i]);
#else
        memcpy(to, &row, sizeof row);
#endif
}

static INLINE void row_stream_h(void *to, struct row_h row) {
#if SIMD_BYTES == 64
        _mm256_stream_si256((__m256i *)to, row.v[0]);
#elif defined(__SSE2__)
        UNROLL for (unsigned i = 0; i < 2; i++)
                _mm_stream_si128((__m128i *)to + i, row.v[i]);
#else
        memcpy(to, &row, sizeof row);
#endif
}

static INLINE struct row_u row_unpack(struct row_h from) {
        struct row_u to;
#if SIMD_BYTES == 64
        to.v[0] = (vec_u)_mm512_cvtepu16_epi32(from.v[0]);
#elif SIMD_BYTES == 32
        UNROLL for (unsigned i = 0; i < 2; i++)
                to.v[i] = (vec_u)_mm256_cvtepu16_epi32(from.v[i]);
#elif defined(__SSE2__)
        UNROLL for (unsigned i = 0; i < 2; i++) {
                to.v[2 * i] = (vec_u)_mm_unpacklo_epi16(from.v[i], _mm_setzero_si128());
                to.v[2 * i + 1] = (vec_u)_mm_unpackhi_epi16(from.v[i], _mm_setzero_si128());
        }
#else
        UNROLL for (unsigned i = 0; i < KERNEL_LANES; i++)
                to.v[i / 4][i % 4] = from.v[i];
#endif
        return to;
}

/* The low halves of the lanes. */
static INLINE struct row_h row_pack(struct row_u from) {
        struct row_h to;
#if SIMD_BYTES == 64
        to.v[0] = _mm512_cvtepi32_epi16((__m512i)from.v[0]);
#elif SIMD_BYTES == 32
        UNROLL for (unsigned i = 0; i < 2; i++) {
                __m256i low = _mm256_and_si256((__m256i)from.v[i], _mm256_set1_epi32(0xffff));
                to.v[i] = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
        }
#elif defined(__SSE2__)
        UNROLL for (unsigned i = 0; i < 2; i++)
                to.v[i] = _mm_packs_epi32(_mm_srai_epi32(_mm_slli_epi32((__m128i)from.v[2 * i], 16), 16),
                                          _mm_srai_epi32(_mm_slli_epi32((__m128i)from.v[2 * i + 1], 16), 16));
#else
        UNROLL for (unsigned i = 0; i < KERNEL_LANES; i++)
                to.v[i] = (uint16_t)from.v[i / 4][i % 4];
#endif
        return to;
}

/* ---- bf16: the upper half of an f32 ---- */

static INLINE struct row_f row_from_bf16(struct row_h from) {
        struct row_u bits = row_unpack(from);
        struct row_f to;
        UNROLL for (unsigned i = 0; i < VECS_F; i++)
                to.v[i] = (vec_f)(bits.v[i] << 16);
        return to;
}

static INLINE struct row_h row_to_bf16(struct row_f from) {
        struct row_u to;
        UNROLL for (unsigned i = 0; i < VECS_F; i++) {
                vec_u bits = (vec_u)from.v[i];
                vec_u rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
                to.v[i] = select_u(from.v[i] != from.v[i], (bits >> 16) | 0x40, rounded);
        }
        return row_pack(to);
}

/* ---- f16 ---- */

#if SIMD_BYTES == 64
static INLINE struct row_f row_from_f16(struct row_h from) {
        return (struct row_f){ { (vec_f)_mm512_cvtph_ps(from.v[0]) } };
}

static INLINE struct row_h row_to_f16(struct row_f from) {
        return (struct row_h){ { _mm512_cvtps_ph((__m512)from.v[0],
                                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC) } };
}
#elif SIMD_BYTES == 32
static INLINE struct row_f row_from_f16(struct row_h from) {
        return (struct row_f){ { (vec_f)_mm256_cvtph_ps(from.v[0]), (vec_f)_mm256_cvtph_ps(from.v[1]) } };
}

static INLINE struct row_h row_to_f16(struct row_f from) {
        return (struct row_h){ { _mm256_cvtps_ph((__m256)from.v[0], _MM_FROUND_TO_NEAREST_INT),
                                 _mm256_cvtps_ph((__m256)from.v[1], _MM_FROUND_TO_NEAREST_INT) } };
}
#else
/* The exponent is moved by a multiplication with 2^112, which makes subnormals right, too. Infinities and
 * NaNs are given the full exponent. */
static INLINE struct row_f row_from_f16(struct row_h from) {
        struct row_u bits = row_unpack(from);
        struct row_f to;
        UNROLL for (unsigned i = 0; i < VECS_F; i++) {
                vec_u sign = (bits.v[i] & 0x8000) << 16, rest = (bits.v[i] & 0x7fff) << 13;
                vec_u value = (vec_u)((vec_f)rest * 0x1p112f);
                vec_u special = (vec_u)((mask_f)rest >= 0x0f800000) & 0x7f800000;
                to.v[i] = (vec_f)(sign | value | special);
        }
        return to;
}

/* Results below the least normal f16 are rounded by adding 0.5, whose last place is that of f16's
 * subnormals. */
static INLINE struct row_h row_to_f16(struct row_f from) {
        struct row_u to;
        UNROLL for (unsigned i = 0; i < VECS_F; i++) {
                vec_u bits = (vec_u)from.v[i], sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;
                vec_u normal = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
                vec_u tiny = (vec_u)((vec_f)rest + 0.5f) - 0x3f000000;
                vec_u value = select_u((mask_f)rest < 0x38800000, tiny, normal);
                value = select_u((mask_f)rest >= 0x47800000, (vec_u){} + 0x7c00, value);
                value = select_u((mask_f)rest > 0x7f800000, ((rest >> 13) & 0x3ff) | 0x7e00, value);
                to.v[i] = sign | value;
        }
        return row_pack(to);
}
#endif
