/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reductions of two operands, as Gloo takes them. Types are numbers of WIRE__DTYPE__…, 16-bit floats
 * are added as f32 and rounded to nearest even; integers wrap; min and max propagate NaN.
 */
#pragma once

#include <cstddef>

/* result[i] = a[i] op b[i] for n elements; result may be a. */
using fold_fn = void (*)(void *result, const void *a, const void *b, std::size_t n);

/* nullptr: there is none. `reduce`: ENGINE_SUM to ENGINE_PROD. */
fold_fn fold_find(unsigned dtype, unsigned reduce);
/* Bytes of an element; 0: no such type. */
std::size_t fold_size(unsigned dtype);
