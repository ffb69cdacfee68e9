/* SPDX-License-Identifier: Apache-2.0 */
/* See mlp_shape.h. */
#include "mlp_shape.h"

#include <math.h>

/* splitmix64: a full-period generator whose whole state is one counter. */
static uint64_t random_next(uint64_t *state) {
        uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        return z ^ (z >> 31);
}

/* Uniform within ±sqrt(6 / in), which keeps the variance of ReLU layers level. */
static void weights_fill(const struct mlp_layer *layer, float *weight, uint64_t *state) {
        float range = sqrtf(6.f / (float)layer->in);
        for (size_t i = 0; i < layer->in * layer->out; i++) {
                float unit = (float)(random_next(state) >> 40) * 0x1p-24f;
                weight[i] = (2.f * unit - 1.f) * range;
        }
}

size_t mlp_shape(struct mlp *mlp, const size_t *widths, size_t layers, size_t batch) {
        *mlp = (struct mlp){ .layers = layers, .batch = batch };
        size_t outputs = 0;
        for (size_t l = 0; l < layers; l++) {
                mlp->layer[l].in = widths[l];
                mlp->layer[l].out = widths[l + 1];
                mlp->params += (widths[l] + 1) * widths[l + 1];
                outputs += widths[l + 1] * batch;
        }
        return 2 * mlp->params + 2 * outputs;
}

static float *place_next(float **memory, size_t count) {
        float *taken = *memory;
        *memory += count;
        return taken;
}

void mlp_place(struct mlp *mlp, float *memory) {
        float *value = memory, *velocity = value + mlp->params, *pass = velocity + mlp->params;
        mlp->memory = memory;
        for (size_t l = 0; l < mlp->layers; l++) {
                struct mlp_layer *layer = &mlp->layer[l];
                layer->weight = place_next(&value, layer->in * layer->out);
                layer->bias = place_next(&value, layer->out);
                layer->weight_velocity = place_next(&velocity, layer->in * layer->out);
                layer->bias_velocity = place_next(&velocity, layer->out);
                layer->output = place_next(&pass, layer->out * mlp->batch);
                layer->delta = place_next(&pass, layer->out * mlp->batch);
        }
}

void mlp_fill(const struct mlp *mlp, float *parameters, uint64_t seed) {
        for (size_t l = 0; l < mlp->layers; l++) {
                const struct mlp_layer *layer = &mlp->layer[l];
                weights_fill(layer, parameters, &seed);
                parameters += layer->in * layer->out;
                for (size_t o = 0; o < layer->out; o++)
                        *parameters++ = 0.f;
        }
}
