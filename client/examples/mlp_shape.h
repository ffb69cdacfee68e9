/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a perceptron in memory, and its initial parameters: the same wherever it computes. */
#ifndef DIGITS_MLP_SHAPE_H
#define DIGITS_MLP_SHAPE_H

#include "mlp.h"

/* Fills in all fields except the pointers into memory; returns how many numbers that memory holds. */
size_t mlp_shape(struct mlp *mlp, const size_t *widths, size_t layers, size_t batch);
/* Lets the layers point into that memory, which is not touched. */
void mlp_place(struct mlp *mlp, float *memory);
/* Writes the initial parameters, in the order of memory. Biases are zero. */
void mlp_fill(const struct mlp *mlp, float *parameters, uint64_t seed);

#endif
