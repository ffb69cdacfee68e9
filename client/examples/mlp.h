/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-layer perceptron in plain C: dense layers with ReLU between them, softmax and cross entropy on
 * top, trained by stochastic gradient descent with momentum. It knows nothing of gradsync: backward writes a
 * layer's gradients wherever the caller says, and that may be memory shared with the daemon.
 *
 * A program links one of its two implementations: mlp.c computes on the CPU, mlp_cuda.c on a GPU. There all
 * memory that the structures and gradients point to is the GPU's. Calls put work into a stream, those that
 * return numbers wait for it, and a GPU that fails ends the program.
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
        float *output; /* [batch][out], after ReLU; in the last layer: probabilities */
        float *delta;  /* [batch][out], d loss / d (output before ReLU) */
};

struct mlp {
        size_t layers;
        size_t batch;       /* most rows of one forward pass */
        size_t params;      /* numbers to be learned, all layers together */
        size_t rows;        /* rows of the latest forward pass */
        double loss;        /* loss of that pass, in mlp.c only */
        const float *input; /* input of that pass; in mlp.c it is the caller's, until backward is done */
        /* Memory that the layers point into. It starts with the state, which is the parameters and their
         * velocities: 2 × params numbers. */
        float *memory;
        struct mlp_layer layer[MLP_LAYERS_MAX];
        struct mlp_gpu *gpu; /* owned by mlp_cuda.c; NULL in mlp.c */
};

/* `widths` has layers + 1 entries: inputs, hidden layers, classes. Equal seeds give equal parameters.
 * `device`: number of a GPU, or -1 if none was asked for. Returns 0, or -1 with a message on standard
 * error. */
int mlp_init(struct mlp *mlp, int device, const size_t *widths, size_t layers, size_t batch, uint64_t seed);
void mlp_deinit(struct mlp *mlp);

/* Computes a forward pass of at most `batch` rows; `input` must stay until the last mlp_backward(). */
void mlp_forward(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows);
/* Returns the cross entropy of the latest forward pass, summed over its rows. */
double mlp_loss(struct mlp *mlp);

/* Writes the gradient of the mean loss of the rows over the old contents. Called from the last layer to the
 * first. */
void mlp_backward(struct mlp *mlp, size_t layer, float *weight_gradient, float *bias_gradient);

void mlp_update(struct mlp *mlp, size_t layer, const float *weight_gradient, const float *bias_gradient,
                float rate, float momentum);

/* The GPU that it computes on; -1: the CPU. */
int mlp_device(const struct mlp *mlp);
/* The stream that the work of the calls above is in; NULL: it is done when they return. */
void *mlp_stream(const struct mlp *mlp);
/* Waits until that work is done, so that others may read and write the state. */
void mlp_wait(struct mlp *mlp);

/* The parameters, and the outputs of the last layer for at most `batch` rows, before softmax. Both are in
 * memory of the host, and valid until the next call. */
const float *mlp_parameters(struct mlp *mlp);
const float *mlp_scores(struct mlp *mlp, const float *input, size_t rows);

/* Returns the number of rows whose own label has the highest probability; any number of rows. */
size_t mlp_correct(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows);

/* 64 bits over all parameters: equal exactly if they are, bit by bit (except for a chance of 2^-64). */
uint64_t mlp_hash(struct mlp *mlp);

#endif
