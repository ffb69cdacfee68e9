/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The argument of a reduction kernel: one structure by value, with a table of parts. A part is one
 * combination as backend.h describes it; parts of one launch have the element type and the operation in
 * common, so many small buckets cost one launch. Read by nvcc and by C compilers.
 *
 * How a part is cut depends on nothing but its elements and inputs, so sums have the same bits whatever the
 * grid:
 *   vector   16 bytes, handled by one thread
 *   round    GRID_THREADS × GRID_VECTORS vectors of each input, 32 KiB; a thread takes every
 *            GRID_THREADS-th vector
 *   chunk    one or more rounds, handled by one block; a part has at most GRID_CHUNKS, and no more than the
 *            scratch memory has room for
 * Each chunk leaves its sums in the scratch memory; the block that ends last adds them up for all parts.
 */
#pragma once

#include <stdint.h>

#define GRID_THREADS 256u /* of each block */
#define GRID_WARP 32u     /* threads that fold their sums together */
#define GRID_WARPS (GRID_THREADS / GRID_WARP)
#define GRID_VECTORS 8u /* of a thread in a round */
#define GRID_VECTOR 16u /* bytes */
#define GRID_ROUND_BYTES (GRID_THREADS * GRID_VECTORS * GRID_VECTOR)
#define GRID_CHUNKS 4096u
#define GRID_SCRATCH_WORDS (1u << 17) /* of one launch: any part fits */
#define GRID_GROUP 8u                 /* inputs read side by side */
#define GRID_PARTS 24u                /* of a launch */
#define GRID_ADDRESSES 512u           /* of all parts of a launch together */

enum grid_operation { GRID_SUM, GRID_PRODUCT, GRID_LEAST, GRID_GREATEST, GRID_COPY, GRID_FIND };

/*
 * Floats only. A part's words in the results, and of each chunk in the scratch memory:
 *   0          sum of squares of the result, f64; of FIND: the first element that is not finite, or all ones
 *   1 … k      sum of squares of each input, f64
 *   k+1 … 2k   how many elements of each input are not finite
 */
#define GRID_WORDS(k) (2u * (k) + 1u)

struct grid_part {
        uint64_t elements;
        double scale;             /* SUM of floats: what each input is multiplied by first */
        uint32_t inputs, outputs; /* numbers of their first addresses */
        uint32_t n_inputs, n_outputs;
        uint32_t chunk, n_chunks; /* among all chunks of the launch */
        uint32_t rounds;          /* of each chunk */
        uint32_t aligned;         /* all its addresses are multiples of GRID_VECTOR */
        uint32_t scratch;         /* number of the first word of its first chunk */
        uint32_t result;          /* likewise, of its results */
};

struct grid_launch {
        uint64_t scratch, results; /* addresses of uint64_t */
        uint64_t ticket;           /* address of a uint32_t: 0 before and after each launch */
        uint32_t n_parts, n_chunks;
        struct grid_part part[GRID_PARTS];
        uint64_t address[GRID_ADDRESSES];
};

#ifdef __cplusplus
#define GRID_ASSERT static_assert
#else
#define GRID_ASSERT _Static_assert
#endif
GRID_ASSERT(sizeof(struct grid_part) == 56, "a part looks the same to both compilers");
GRID_ASSERT(sizeof(struct grid_launch) == 32 + GRID_PARTS * 56 + GRID_ADDRESSES * 8, "and so does a launch");
/* From CUDA 12.1 on, the parameters of a kernel may have so many bytes on sm_70 and above. */
GRID_ASSERT(sizeof(struct grid_launch) <= 32764, "a launch fits a kernel's parameters");

/*
 * All kernels: X(name, type, operation, k). k: the number of inputs that it is made for; 0: any number. Sums
 * of floats are what is wanted in nearly all cases.
 */
#define GRID_SUMS(X, type)                                                                                   \
        X(sum_##type##_1, type, GRID_SUM, 1)                                                                 \
        X(sum_##type##_2, type, GRID_SUM, 2)                                                                 \
        X(sum_##type##_3, type, GRID_SUM, 3)                                                                 \
        X(sum_##type##_4, type, GRID_SUM, 4)                                                                 \
        X(sum_##type##_5, type, GRID_SUM, 5)                                                                 \
        X(sum_##type##_6, type, GRID_SUM, 6)                                                                 \
        X(sum_##type##_7, type, GRID_SUM, 7)                                                                 \
        X(sum_##type##_8, type, GRID_SUM, 8)                                                                 \
        X(copy_##type, type, GRID_COPY, 1)                                                                   \
        X(find_##type, type, GRID_FIND, 1)
#define GRID_ANY(X, type)                                                                                    \
        X(sum_##type, type, GRID_SUM, 0)                                                                     \
        X(product_##type, type, GRID_PRODUCT, 0)                                                             \
        X(least_##type, type, GRID_LEAST, 0)                                                                 \
        X(greatest_##type, type, GRID_GREATEST, 0)
#define GRID_LIST(X)                                                                                         \
        GRID_SUMS(X, f32)                                                                                    \
        GRID_SUMS(X, f64)                                                                                    \
        GRID_SUMS(X, f16)                                                                                    \
        GRID_SUMS(X, bf16)                                                                                   \
        GRID_ANY(X, f32)                                                                                     \
        GRID_ANY(X, f64)                                                                                     \
        GRID_ANY(X, f16)                                                                                     \
        GRID_ANY(X, bf16)                                                                                    \
        GRID_ANY(X, i32)                                                                                     \
        GRID_ANY(X, i64)                                                                                     \
        GRID_ANY(X, u8)                                                                                      \
        X(copy_u8, u8, GRID_COPY, 1)

enum grid_type { GRID_f32, GRID_f64, GRID_f16, GRID_bf16, GRID_i32, GRID_i64, GRID_u8 };

enum grid_kernel {
#define GRID_KERNEL(name, type, operation, k) GRID_KERNEL_##name,
        GRID_LIST(GRID_KERNEL)
#undef GRID_KERNEL
                GRID_KERNELS
};

/* The names of the compiled functions. */
#define GRID_PREFIX "gradsync_"
