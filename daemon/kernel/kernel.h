/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic on elements that the CPU does: the inner loops of the host backend (one slice of a task, one
 * thread), and the folds of Gloo's helper. kernel.c is compiled once per instruction set; kernel_select.c
 * picks the set at run time. All sets give the same bits: sums of squares are kept in KERNEL_LANES lanes of
 * f64 whatever the width of the machine's vectors, folded per block in one fixed order, and multiplications
 * are never fused with additions unless the product is exact. (Which NaN comes out of two NaNs is fixed for
 * folds alone, which nodes with different CPUs do; all outputs of a task get the same one.) Denormals are
 * kept; rounding is to nearest even.
 *
 * min and max: a NaN among the inputs makes the result NaN; of equal values the first stays, so min(-0, +0)
 * is -0 and min(+0, -0) is +0.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gradsync.pb-c.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend_seal;

#define KERNEL_LANES 16u  /* elements handled as one row */
#define KERNEL_BLOCK 512u /* elements accumulated at a time: fits the first-level cache */
/* Bytes of one arena in a slice, the unit in which tasks take turns. Slices are smaller where a task would
 * otherwise have too few for all workers. The order of sums depends on the size of slices, so that depends on
 * nothing but the size of the task. */
#define KERNEL_SLICE_BYTES (256u << 10)
#define KERNEL_SLICE_SMALL (64u << 10)
#define KERNEL_SMALL_TASK (2u << 20) /* tasks of up to so many bytes of one arena have small slices */
/* Least bytes of one arena for which a task's outputs may be written around the caches, if they begin at a
 * multiple of KERNEL_LINE. Smaller outputs are still in the caches when they are read. */
#define KERNEL_LARGE_TASK (1u << 20)
#define KERNEL_LINE 64u

/* Operations of float reductions. Average and sum are one: an input times the scale, added. */
enum kernel_op { KERNEL_ADD, KERNEL_MUL, KERNEL_MIN, KERNEL_MAX, KERNEL_OPS };

struct kernel_slice {
        const unsigned char *const *inputs; /* starts of the ranges */
        unsigned char *const *outputs;
        unsigned n_inputs, n_outputs;
        size_t first, elements; /* the slice within the ranges */
        /* KERNEL_ADD of floats: the factor of inputs, rounded to the accumulator's type already. */
        double scale;
        /* Floats only: copies measure if this is set, all other kernels measure in any case. */
        bool measure;
        bool uncached;      /* writes around the caches, which saves reading lines that are overwritten */
        double *input_sums; /* n_inputs sums of squares to add to */
        double *result_sum;
        uint64_t *input_nonfinite; /* n_inputs counts to add to */
        /* For `find` alone: set to the first element that is not finite, if there is one. */
        uint64_t *found;
        const struct backend_seal *seal; /* elements are pieces then; `found` is the first bad one */
};

/* A kernel. For floats `elements` must be a multiple of KERNEL_LANES; kernel_run() takes any number. */
typedef void (*kernel_fn)(const struct kernel_slice *slice);

#define KERNEL_DTYPES (WIRE__DTYPE__U8 + 1)

struct kernel_set {
        const char *name;
        kernel_fn reduce[KERNEL_DTYPES][KERNEL_OPS];
        /* Two inputs, one output, which may be the first input; nothing is measured or scaled. 16-bit floats
         * are rounded once. The first of two NaNs stays for 16-bit floats, the second for other ones. */
        kernel_fn fold[KERNEL_DTYPES][KERNEL_OPS];
        kernel_fn copy[KERNEL_DTYPES]; /* exactly one input */
        kernel_fn find[KERNEL_DTYPES]; /* exactly one input; floats only, any number of elements */
};

/* Returns the best set that this CPU runs. The environment variable GRADSYNC_SIMD (baseline, avx2, avx512)
 * asks for a lesser one. NULL if it names one that this build or CPU lacks. */
const struct kernel_set *kernel_select(void);
/* Returns a set by name, or NULL. */
const struct kernel_set *kernel_find(const char *name);

/* Runs a kernel on a slice of elements of `size` bytes. Elements after the last full row are padded to a row
 * of their own. */
void kernel_run(kernel_fn kernel, const struct kernel_slice *slice, size_t size);

/* Runs a kernel for folds on so many elements of two operands. */
void kernel_fold(kernel_fn fold, size_t size, void *result, const void *a, const void *b, size_t elements);

/* Returns the bytes of one element; 0 for an unknown type. */
size_t kernel_size(unsigned dtype);

extern const struct kernel_set kernel_set_baseline, kernel_set_avx2, kernel_set_avx512;

#ifdef __cplusplus
}
#endif
