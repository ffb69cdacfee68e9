/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reductions of two operands, as Gloo takes them. Types are numbers of WIRE__DTYPE__…, 16-bit floats
 * are added as f32 and rounded to nearest even, once for each pair of operands; integers wrap; min and max
 * propagate NaN.
 *
 * 16-bit floats are folded by instructions of their own where the CPU has them, which is found out at run
 * time. The bits do not depend on it, NaNs included: nodes of one job may have different CPUs.
 */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* result[i] = a[i] op b[i] for n elements; result may be a. */
typedef void (*fold_fn)(void *result, const void *a, const void *b, size_t n);

/* NULL: there is none. `reduce`: ENGINE_SUM to ENGINE_PROD. `set`: "baseline", or "avx2" where there is that;
 * NULL: what the environment variable GRADSYNC_SIMD says (anything but "baseline" is the best there is). */
fold_fn fold_find(unsigned dtype, unsigned reduce, const char *set);
/* The best set of this CPU. */
const char *fold_best(void);
/* Bytes of an element; 0: no such type. */
size_t fold_size(unsigned dtype);

#if HAVE_FOLD_AVX2
/* Of that set, which the CPU has; NULL: it has nothing better than the baseline. */
fold_fn fold_find_avx2(unsigned dtype, unsigned reduce);
#endif

#ifdef __cplusplus
}
#endif
