/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inner loops of the host backend: one slice of a task, one thread. kernel.c is compiled once per
 * instruction set; kernel_select.c picks the set at run time. All sets give the same bits: sums of squares
 * are kept in KERNEL_LANES lanes of f64 whatever the width of the machine's vectors, folded per block in one
 * fixed order, and multiplications are never fused with additions unless the product is exact. (Which NaN
 * comes out of two NaNs is not fixed; all outputs get the same one.) Denormals are kept; rounding is to
 * nearest even.
 *
 * min and max: a NaN among the inputs makes the result NaN; of equal values the first stays, so min(-0, +0)
 * is -0 and min(+0, -0) is +0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/seal.h"
#include "proto/gradsync.pb-c.h"

#define KERNEL_LANES 16u  /* elements handled as one row */
#define KERNEL_BLOCK 512u /* elements accumulated at a time: fits the first-level cache */
/* Bytes of one arena in a slice, the grain of taking turns: less where a task would else have too few for all
 * workers. The order of sums depends on it, so it depends on nothing but the size of the task. */
#define KERNEL_SLICE_BYTES (256u << 10)
#define KERNEL_SLICE_SMALL (64u << 10)
#define KERNEL_SMALL_TASK (2u << 20) /* bytes of one arena, up to which slices are small */
/* Bytes of one arena from which on a task's outputs may be written around the caches, where they begin at a
 * multiple of KERNEL_LINE. What is less is still there when it is read. */
#define KERNEL_LARGE_TASK (1u << 20)
#define KERNEL_LINE 64u

/* Float reductions; average and sum are one: an input times the scale, added. */
enum kernel_op { KERNEL_ADD, KERNEL_MUL, KERNEL_MIN, KERNEL_MAX, KERNEL_OPS };

struct kernel_slice {
        const unsigned char *const *inputs; /* starts of the ranges */
        unsigned char *const *outputs;
        unsigned n_inputs, n_outputs;
        size_t first, elements; /* the slice within the ranges */
        /* KERNEL_ADD of floats; rounded to the accumulator's type already */
        double scale;
        /* Floats only; copies measure if asked to, everything else does anyway. */
        bool measure;
        bool uncached;      /* writes around the caches: saves reading what is overwritten */
        double *input_sums; /* n_inputs sums of squares to add to */
        double *result_sum;
        uint64_t *input_nonfinite; /* n_inputs counts to add to */
        uint64_t *found; /* `find` alone: set to the first element that is not finite, if there is one */
        const struct backend_seal *seal; /* pieces instead of elements; `found` is the first bad one */
};

/* Floats: `elements` must be a multiple of KERNEL_LANES. kernel_run() is for any number. */
typedef void (*kernel_fn)(const struct kernel_slice *slice);

#define KERNEL_DTYPES (WIRE__DTYPE__U8 + 1)

struct kernel_set {
        const char *name;
        kernel_fn reduce[KERNEL_DTYPES][KERNEL_OPS];
        kernel_fn copy[KERNEL_DTYPES]; /* exactly one input */
        kernel_fn find[KERNEL_DTYPES]; /* the same; floats only, any number of elements */
};

/* The best set this CPU runs; the environment variable GRADSYNC_SIMD (baseline, avx2, avx512) asks for a
 * lesser one. NULL if it names one that this build or CPU lacks. */
const struct kernel_set *kernel_select(void);
/* One by name, or NULL. */
const struct kernel_set *kernel_find(const char *name);

/* Runs a kernel on a slice of elements of `size` bytes; odd ones at the end are padded to a row of their
 * own. */
void kernel_run(kernel_fn kernel, const struct kernel_slice *slice, size_t size);

/* Bytes of one element; 0 for an unknown type. */
size_t kernel_size(unsigned dtype);

extern const struct kernel_set kernel_set_baseline, kernel_set_avx2, kernel_set_avx512;
