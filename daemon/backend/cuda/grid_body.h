/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels, written once for GPUs and for the host. A block is straight code with phases: what stands
 * after EACH_THREAD is done by every thread, and what threads must know of each other goes through folds,
 * which are the only part that is written twice. On the host one thread plays all of a block's, in turn.
 *
 * Inputs are read once. All loads of a vector are issued before the first addition. Multiplications are not
 * fused with additions, unless the product is exact; accumulators of f32, f16 and bf16 are f32, rounded to
 * nearest even at the end; so all results have the bits of the host backend (which NaN comes out of two is
 * not fixed). Sums of squares are f64.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "grid.h"

#ifdef __CUDACC__
/* With internal linkage, names of shared variables would depend on where the source lies. */
#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define EACH_THREAD
#define THREAD threadIdx.x
#define OWN 1u /* copies of what each thread has */
#define MINE(x) x[0]
#else
#define DEVICE static inline __attribute__((always_inline, unused))
#define UNROLL
#define NO_UNROLL
#define EACH_THREAD for (unsigned thread = 0; thread < GRID_THREADS; thread++)
#define THREAD thread
#define OWN GRID_THREADS
#define MINE(x) x[thread]
#endif

#define POINTER(type, address) ((type *)(uintptr_t)(address))

/* The figures of the inputs that a thread has read, and of the result. */
struct grid_tally {
        double result, squares[GRID_GROUP];
        uint32_t nonfinite[GRID_GROUP];
};

DEVICE uint64_t grid_bits(double value) {
#ifdef __CUDACC__
        return (uint64_t)__double_as_longlong(value);
#else
        uint64_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return bits;
#endif
}

DEVICE double grid_double(uint64_t bits) {
#ifdef __CUDACC__
        return __longlong_as_double((long long)bits);
#else
        double value;
        memcpy(&value, &bits, sizeof(value));
        return value;
#endif
}

/* ---- 16-bit floats ---- */

#ifdef __CUDACC__
DEVICE float grid_from_f16(uint16_t bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
}

DEVICE uint16_t grid_to_f16(float value) {
        uint16_t bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
}

DEVICE float grid_from_bf16(uint16_t bits) {
        return __uint_as_float((uint32_t)bits << 16);
}

DEVICE uint16_t grid_to_bf16(float value) {
        uint16_t bits;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
        return bits;
}
#else
DEVICE float grid_float(uint32_t bits) {
        float value;
        memcpy(&value, &bits, sizeof(value));
        return value;
}

DEVICE uint32_t grid_float_bits(float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        return bits;
}

/* Read as an f32 whose exponent is off by the difference of the biases, which a multiplication by a power of
 * two puts right, also for subnormals. */
DEVICE float grid_from_f16(uint16_t bits) {
        uint32_t sign = (uint32_t)(bits & 0x8000) << 16, rest = (uint32_t)(bits & 0x7fff) << 13;
        float value = rest >= 0x7c00u << 13 ? grid_float(rest + 0x70000000u) : grid_float(rest) * 0x1p112f;

        return grid_float(grid_float_bits(value) | sign);
}

DEVICE uint16_t grid_to_f16(float value) {
        uint32_t bits = grid_float_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;

        if (rest > 0x7f800000)
                return (uint16_t)(sign | 0x7fff);
        if (rest >= 0x477ff000) /* rounds to infinity */
                return (uint16_t)(sign | 0x7c00);
        if (rest < 0x38800000) /* subnormal: the addition rounds to its last place */
                return (uint16_t)(sign | (grid_float_bits(grid_float(rest) + 0.5f) - 0x3f000000));
        return (uint16_t)(sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

DEVICE float grid_from_bf16(uint16_t bits) {
        return grid_float((uint32_t)bits << 16);
}

DEVICE uint16_t grid_to_bf16(float value) {
        uint32_t bits = grid_float_bits(value);

        if ((bits & 0x7fffffff) > 0x7f800000)
                return (uint16_t)0x7fff;
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

/* ---- folds ---- */

/*
 * Adds the tallies of all threads to the chunk's words in the scratch memory: in each warp by halves, then
 * the warps in their order. `first`: the words hold nothing yet. k inputs, of n, from number `from` on.
 */
#ifdef __CUDACC__
DEVICE void grid_fold(const struct grid_tally *tally, uint64_t *words, unsigned from, unsigned k, unsigned n,
                      bool first) {
        __shared__ double square[GRID_WARPS][GRID_GROUP + 1];
        __shared__ uint32_t count[GRID_WARPS][GRID_GROUP];
        unsigned warp = threadIdx.x / GRID_WARP, lane = threadIdx.x % GRID_WARP;

        UNROLL for (unsigned i = 0; i <= GRID_GROUP; i++) {
                if (i > k)
                        continue;
                double sum = i == 0 ? tally->result : tally->squares[i - 1];
                uint32_t found = i == 0 ? 0 : tally->nonfinite[i - 1];
                for (unsigned half = GRID_WARP / 2; half > 0; half /= 2) {
                        sum += __shfl_down_sync(~0u, sum, half);
                        found += __shfl_down_sync(~0u, found, half);
                }
                if (lane == 0)
                        square[warp][i] = sum;
                if (lane == 0 && i > 0)
                        count[warp][i - 1] = found;
        }
        __syncthreads();
        if (threadIdx.x <= k) {
                unsigned i = threadIdx.x;
                uint64_t *word = words + (i == 0 ? 0 : from + i);
                double sum = i == 0 && from > 0 ? grid_double(*word) : first ? 0 : grid_double(*word);
                uint64_t found = first || i == 0 ? 0 : word[n];
                for (unsigned w = 0; w < GRID_WARPS; w++) {
                        sum += square[w][i];
                        found += i > 0 ? count[w][i - 1] : 0;
                }
                *word = grid_bits(sum);
                if (i > 0)
                        word[n] = found;
        }
        __syncthreads();
}
#else
DEVICE void grid_fold(struct grid_tally *tally, uint64_t *words, unsigned from, unsigned k, unsigned n,
                      bool first) {
        for (unsigned i = 0; i <= k; i++) {
                uint64_t *word = words + (i == 0 ? 0 : from + i);
                double sum = i == 0 && from > 0 ? grid_double(*word) : first ? 0 : grid_double(*word);
                uint64_t found = first || i == 0 ? 0 : word[n];
                for (unsigned warp = 0; warp < GRID_WARPS; warp++) {
                        double lane[GRID_WARP];
                        for (unsigned l = 0; l < GRID_WARP; l++) {
                                const struct grid_tally *mine = &tally[warp * GRID_WARP + l];
                                lane[l] = i == 0 ? mine->result : mine->squares[i - 1];
                                found += i == 0 ? 0 : mine->nonfinite[i - 1];
                        }
                        for (unsigned half = GRID_WARP / 2; half > 0; half /= 2)
                                for (unsigned l = 0; l < half; l++)
                                        lane[l] += lane[l + half];
                        sum += lane[0];
                }
                *word = grid_bits(sum);
                if (i > 0)
                        word[n] = found;
        }
}
#endif

/* The same for the least of the threads' numbers. */
DEVICE void grid_fold_least(const uint64_t *found, uint64_t *words) {
#ifdef __CUDACC__
        __shared__ unsigned long long least;

        if (threadIdx.x == 0)
                least = ~0ull;
        __syncthreads();
        if (*found != UINT64_MAX)
                atomicMin(&least, *found);
        __syncthreads();
        if (threadIdx.x == 0)
                *words = least;
        __syncthreads();
#else
        *words = UINT64_MAX;
        for (unsigned thread = 0; thread < GRID_THREADS; thread++)
                if (found[thread] < *words)
                        *words = found[thread];
#endif
}

/*
 * Adds up what the chunks of all parts have left, in their order: a warp for each part, whose lanes take
 * every GRID_WARP-th chunk. Done by the block that ends last.
 */
DEVICE void grid_total(const struct grid_launch *launch, const struct grid_part *part, bool find,
                       unsigned word, unsigned lane, uint64_t *ret) {
        unsigned n = GRID_WORDS(part->n_inputs);
        const volatile uint64_t *words =
                POINTER(const volatile uint64_t, launch->scratch) + part->scratch + word;
        uint64_t total = find ? UINT64_MAX : 0;
        double sum = 0;

        for (uint32_t chunk = lane; chunk < part->n_chunks; chunk += GRID_WARP) {
                uint64_t value = words[(uint64_t)chunk * n];
                if (find)
                        total = value < total ? value : total;
                else if (word <= part->n_inputs)
                        sum += grid_double(value);
                else
                        total += value;
        }
        *ret = !find && word <= part->n_inputs ? grid_bits(sum) : total;
}

/* Two lanes' totals. */
DEVICE uint64_t grid_join(bool find, bool is_sum, uint64_t a, uint64_t b) {
        if (find)
                return b < a ? b : a;
        return is_sum ? grid_bits(grid_double(a) + grid_double(b)) : a + b;
}

DEVICE void grid_totals(const struct grid_launch *launch, bool find) {
#ifdef __CUDACC__
        for (unsigned p = threadIdx.x / GRID_WARP; p < launch->n_parts; p += GRID_WARPS) {
                const struct grid_part *part = &launch->part[p];
                for (unsigned word = 0; word < (find ? 1 : GRID_WORDS(part->n_inputs)); word++) {
                        bool is_sum = word <= part->n_inputs;
                        uint64_t total;
                        grid_total(launch, part, find, word, threadIdx.x % GRID_WARP, &total);
                        for (unsigned half = GRID_WARP / 2; half > 0; half /= 2)
                                total = grid_join(find, is_sum, total,
                                                  __shfl_down_sync(~0u, (unsigned long long)total, half));
                        if (threadIdx.x % GRID_WARP == 0)
                                POINTER(uint64_t, launch->results)[part->result + word] = total;
                }
        }
#else
        for (unsigned p = 0; p < launch->n_parts; p++) {
                const struct grid_part *part = &launch->part[p];
                for (unsigned word = 0; word < (find ? 1 : GRID_WORDS(part->n_inputs)); word++) {
                        uint64_t total[GRID_WARP];
                        for (unsigned lane = 0; lane < GRID_WARP; lane++)
                                grid_total(launch, part, find, word, lane, &total[lane]);
                        for (unsigned half = GRID_WARP / 2; half > 0; half /= 2)
                                for (unsigned lane = 0; lane < half; lane++)
                                        total[lane] = grid_join(find, word <= part->n_inputs, total[lane],
                                                                total[lane + half]);
                        POINTER(uint64_t, launch->results)[part->result + word] = total[0];
                }
        }
#endif
}

/* ---- the types ---- */

#define GRID_SAME(x) (x)

#define RAW float
#define ACC float
#define CMP float
#define LOAD GRID_SAME
#define STORE GRID_SAME
#define EXPONENT 0x7f800000u
#define IS_NAN(x) ((x) != (x))
#define EXACT true
#define T(name) name##_f32
#include "grid_pass.h"

#define RAW double
#define ACC double
#define CMP double
#define LOAD GRID_SAME
#define STORE GRID_SAME
#define EXPONENT 0x7ff0000000000000u
#define IS_NAN(x) ((x) != (x))
#define EXACT false
#define T(name) name##_f64
#include "grid_pass.h"

#define RAW uint16_t
#define ACC float
#define CMP float
#define LOAD grid_from_f16
#define STORE grid_to_f16
#define EXPONENT 0x7c00u
#define IS_NAN(x) ((x) != (x))
#define EXACT true
#define T(name) name##_f16
#include "grid_pass.h"

#define RAW uint16_t
#define ACC float
#define CMP float
#define LOAD grid_from_bf16
#define STORE grid_to_bf16
#define EXPONENT 0x7f80u
#define IS_NAN(x) ((x) != (x))
#define EXACT true
#define T(name) name##_bf16
#include "grid_pass.h"

/* Arithmetic on unsigned types wraps. */
#define RAW uint32_t
#define ACC uint32_t
#define CMP int32_t
#define LOAD GRID_SAME
#define STORE GRID_SAME
#define EXPONENT 0u
#define IS_NAN(x) false
#define EXACT false
#define T(name) name##_i32
#include "grid_pass.h"

#define RAW uint64_t
#define ACC uint64_t
#define CMP int64_t
#define LOAD GRID_SAME
#define STORE GRID_SAME
#define EXPONENT 0u
#define IS_NAN(x) false
#define EXACT false
#define T(name) name##_i64
#include "grid_pass.h"

#define RAW uint8_t
#define ACC uint8_t
#define CMP uint8_t
#define LOAD GRID_SAME
#define STORE GRID_SAME
#define EXPONENT 0u
#define IS_NAN(x) false
#define EXACT false
#define T(name) name##_u8
#include "grid_pass.h"
