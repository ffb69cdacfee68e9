/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perceptron's arithmetic. The inner loops run over the outputs of a layer, which lie side by side in
 * memory, so that a compiler turns them into vector instructions without being allowed to reorder sums; the
 * one sum that needs reordering (backwards through the weights) does so by hand, in mlp_body.h. All of it is
 * deterministic: equal inputs give equal bits.
 */
#include "mlp.h"

#include "mlp_body.h"
#include "mlp_shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mlp_init(struct mlp *mlp, int device, const size_t *widths, size_t layers, size_t batch, uint64_t seed) {
        if (device >= 0) {
                fprintf(stderr, "digits: this program computes on the CPU: --device is for digits_cuda\n");
                return -1;
        }
        size_t count = mlp_shape(mlp, widths, layers, batch);
        float *memory = calloc(count, sizeof(*memory));
        if (!memory) {
                fprintf(stderr, "digits: out of memory\n");
                return -1;
        }
        mlp_place(mlp, memory);
        mlp_fill(mlp, memory, seed);
        return 0;
}

void mlp_deinit(struct mlp *mlp) {
        free(mlp->memory);
        *mlp = (struct mlp){ 0 };
}

/* The input of a layer: the outputs of the layer below it, or the images. */
static const float *layer_input(const struct mlp *mlp, size_t l) {
        return l ? mlp->layer[l - 1].output : mlp->input;
}

static void layer_forward(const struct mlp_layer *layer, const float *input, size_t rows) {
        for (size_t r = 0; r < rows; r++) {
                const float *in = input + r * layer->in;
                float *restrict out = layer->output + r * layer->out;
                memcpy(out, layer->bias, layer->out * sizeof(*out));
                for (size_t i = 0; i < layer->in; i++) {
                        const float *weight = layer->weight + i * layer->out;
                        for (size_t o = 0; o < layer->out; o++)
                                out[o] += in[i] * weight[o];
                }
        }
}

static void relu(float *value, size_t count) {
        for (size_t i = 0; i < count; i++)
                value[i] = value[i] > 0.f ? value[i] : 0.f;
}

static void forward(struct mlp *mlp, const float *input, size_t rows) {
        mlp->input = input;
        mlp->rows = rows;
        for (size_t l = 0; l < mlp->layers; l++) {
                struct mlp_layer *layer = &mlp->layer[l];
                layer_forward(layer, layer_input(mlp, l), rows);
                if (l + 1 < mlp->layers)
                        relu(layer->output, rows * layer->out);
        }
}

void mlp_forward(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows) {
        struct mlp_layer *last = &mlp->layer[mlp->layers - 1];

        forward(mlp, input, rows);
        mlp->loss = 0.;
        for (size_t r = 0; r < rows; r++)
                mlp->loss += mlp_softmax(last->output + r * last->out, last->delta + r * last->out,
                                         (uint32_t)last->out, label[r], (uint32_t)rows);
}

double mlp_loss(struct mlp *mlp) {
        return mlp->loss;
}

/* Computes the delta of the layer below: back through the weights, and zero where its ReLU was shut. */
static void backward_delta(const struct mlp_layer *layer, struct mlp_layer *below, size_t rows) {
        for (size_t r = 0; r < rows; r++) {
                const float *delta = layer->delta + r * layer->out, *open = below->output + r * below->out;
                float *into = below->delta + r * below->out;
                for (size_t i = 0; i < layer->in; i++)
                        into[i] = open[i] > 0.f ? mlp_dot(delta, layer->weight + i * layer->out,
                                                          (uint32_t)layer->out)
                                                : 0.f;
        }
}

void mlp_backward(struct mlp *mlp, size_t l, float *weight_gradient, float *bias_gradient) {
        struct mlp_layer *layer = &mlp->layer[l];
        const float *input = layer_input(mlp, l);

        memset(weight_gradient, 0, layer->in * layer->out * sizeof(float));
        memset(bias_gradient, 0, layer->out * sizeof(float));
        for (size_t r = 0; r < mlp->rows; r++) {
                const float *in = input + r * layer->in, *delta = layer->delta + r * layer->out;
                for (size_t i = 0; i < layer->in; i++) {
                        float *restrict gradient = weight_gradient + i * layer->out;
                        for (size_t o = 0; o < layer->out; o++)
                                gradient[o] += in[i] * delta[o];
                }
                for (size_t o = 0; o < layer->out; o++)
                        bias_gradient[o] += delta[o];
        }
        if (l)
                backward_delta(layer, &mlp->layer[l - 1], mlp->rows);
}

static void descend(float *restrict value, float *restrict velocity, const float *gradient, size_t count,
                    float rate, float momentum) {
        for (size_t i = 0; i < count; i++) {
                velocity[i] = momentum * velocity[i] + gradient[i];
                value[i] -= rate * velocity[i];
        }
}

void mlp_update(struct mlp *mlp, size_t l, const float *weight_gradient, const float *bias_gradient,
                float rate, float momentum) {
        struct mlp_layer *layer = &mlp->layer[l];
        descend(layer->weight, layer->weight_velocity, weight_gradient, layer->in * layer->out, rate,
                momentum);
        descend(layer->bias, layer->bias_velocity, bias_gradient, layer->out, rate, momentum);
}

int mlp_device(const struct mlp *mlp) {
        return -1;
}

void *mlp_stream(const struct mlp *mlp) {
        return NULL;
}

void mlp_wait(struct mlp *mlp) {}

const float *mlp_parameters(struct mlp *mlp) {
        return mlp->memory;
}

const float *mlp_scores(struct mlp *mlp, const float *input, size_t rows) {
        forward(mlp, input, rows);
        return mlp->layer[mlp->layers - 1].output;
}
