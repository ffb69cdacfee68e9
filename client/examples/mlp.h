/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-layer perceptron in plain C: dense layers with ReLU between them, softmax and cross entropy on
 * top, trained by stochastic gradient descent with momentum. It knows nothing of gradsync: backward writes a
 * layer's gradients wherever the caller says, and that may be memory shared with the daemon.
 */
#ifndef DIGITS_MLP_H
#define DIGITS_MLP_H

#include <stddef.h>
#include <stdint.h>

#define MLP_LAYERS_MAX 8

struct mlp_layer {
        size_t in, out;
        float *weight, *bias; /* weight: [in][out] */
        float *weight_velocity, *bias_velocity;
        float *output; /* [batch][out], after ReLU; of the last layer: probabilities */
        float *delta;  /* [batch][out], d loss / d (output before ReLU) */
};

struct mlp {
        size_t layers;
        size_t batch;       /* most rows of one forward pass */
        size_t params;      /* numbers to be learned, all layers together */
        size_t rows;        /* of the latest forward pass */
        const float *input; /* likewise; the caller's, until backward is done */
        /* What the layers point into. It starts with the state, which is the parameters and their velocities:
         * 2 × params numbers. */
        float *memory;
        struct mlp_layer layer[MLP_LAYERS_MAX];
};

/* `widths` has layers + 1 entries: inputs, hidden layers, classes. Equal seeds give equal parameters. -1: no
 * memory. */
int mlp_init(struct mlp *mlp, const size_t *widths, size_t layers, size_t batch, uint64_t seed);
void mlp_deinit(struct mlp *mlp);

/* Sum over the rows of the cross entropy. At most `batch` rows; `input` must stay until the last
 * mlp_backward(). */
double mlp_forward(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows);

/* The gradient of the mean loss of the rows, written over whatever was there. From the last layer to the
 * first. */
void mlp_backward(struct mlp *mlp, size_t layer, float *weight_gradient, float *bias_gradient);

void mlp_update(struct mlp *mlp, size_t layer, const float *weight_gradient, const float *bias_gradient,
                float rate, float momentum);

/* How many rows get their own label the highest probability; any number of rows. */
size_t mlp_correct(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows);

/* 64 bits over all parameters: equal exactly if they are, bit by bit (except for a chance of 2^-64). */
uint64_t mlp_hash(const struct mlp *mlp);

#endif
