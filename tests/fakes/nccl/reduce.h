/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the fake NCCL. Numbers of types and operations are those of proto/nccl.h. Types of 16
 * bits are rounded to nearest, ties to even, after each operation, as NCCL does hop by hop; maximum and
 * minimum of floats leave NaNs out (NCCL: src/device/reduce_kernel.h, which uses fmaxf() and __hmax()).
 */
#pragma once

#include <stddef.h>

/* Bytes of an element; 0: no such type. */
size_t reduce_size(int type);
/* to[i] = in[0][i] + in[1][i] + …, in this order; `to` is none of the inputs. */
void reduce(void *to, const void *const *in, unsigned n, size_t count, int type, int operation);
