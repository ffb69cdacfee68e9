/* SPDX-License-Identifier: Apache-2.0 */
/* How a perceptron lies in memory, and what its parameters are at first: the same wherever it computes. */
#ifndef DIGITS_MLP_SHAPE_H
#define DIGITS_MLP_SHAPE_H

#include "mlp.h"

/* Fills in all but what is in memory; returns how many numbers that needs. */
size_t mlp_shape(struct mlp *mlp, const size_t *widths, size_t layers, size_t batch);
/* Lets the layers point into that memory, which is not touched. */
void mlp_place(struct mlp *mlp, float *memory);
/* The parameters at first, in the order of memory. Biases are zero. */
void mlp_fill(const struct mlp *mlp, float *parameters, uint64_t seed);

#endif
