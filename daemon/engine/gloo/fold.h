/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reductions of two operands, in the form that Gloo takes. Types are numbers of WIRE__DTYPE__…. 16-bit
 * floats are added as f32 and rounded to nearest even, once for each pair of operands. Integers wrap; min and
 * max propagate NaN.
 *
 * 16-bit floats are folded by instructions of their own if the CPU has them, which is found out at run time.
 * The bits do not depend on that, NaNs included, because nodes of one job may have different CPUs.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* result[i] = a[i] op b[i] for n elements; result may be a. */
typedef void (*fold_fn)(void *result, const void *a, const void *b, size_t n);

/* Finds a reduction; NULL if there is none. `reduce` is ENGINE_SUM to ENGINE_PROD. `set` is "baseline", or
 * "avx2" if the CPU has that; NULL: the set of the environment variable GRADSYNC_SIMD (all values except
 * "baseline" mean the best set). */
fold_fn fold_find(unsigned dtype, unsigned reduce, const char *set);
/* Returns the best set of this CPU. */
const char *fold_best(void);
/* Returns the bytes of an element; 0 if there is no such type. */
size_t fold_size(unsigned dtype);

#if HAVE_FOLD_AVX2
/* Finds a reduction of the set "avx2", which the CPU must have. NULL if the set has nothing better than the
 * baseline. */
fold_fn fold_find_avx2(unsigned dtype, unsigned reduce);
#endif

#ifdef __cplusplus
}
#endif
