/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perceptron's kernels: the work of one thread of each, written once for GPUs and for the host. A thread
 * computes one number, or one row of softmax, by itself. Sums go in the order of mlp.c and nothing is fused.
 * So equal inputs give equal bits on any grid, and the bits of mlp.c if exp() and log() are the same.
 */
#ifndef DIGITS_MLP_BODY_H
#define DIGITS_MLP_BODY_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define MLP_DEVICE __device__ __forceinline__
#else
#define MLP_DEVICE static inline __attribute__((always_inline, unused))
#endif

#define MLP_THREADS 128u /* threads of each block */
#define MLP_DOT_LANES 8

/*
 * The argument of a launch: one layer of mlp.h, for `rows` rows. Each kernel uses the fields that it needs.
 */
struct mlp_work {
        uint64_t input, weight, bias, output, delta;
        uint64_t weight_gradient, bias_gradient, weight_velocity, bias_velocity;
        uint64_t below; /* delta of the layer below, whose output is the input */
        uint64_t label; /* labels of the rows */
        uint64_t loss;  /* losses of the rows, each a double */
        uint32_t in, out, rows;
        uint32_t is_last; /* the layer has no ReLU */
        float rate, momentum;
};

#ifdef __cplusplus
static_assert(sizeof(struct mlp_work) == 120, "it looks the same to both compilers");
#else
_Static_assert(sizeof(struct mlp_work) == 120, "it looks the same to both compilers");
#endif

/* X(name): the kernels, in the order of a step. */
#define MLP_KERNELS(X) X(forward) X(softmax) X(gradient) X(delta) X(update)
#define MLP_PREFIX "digits_" /* prefix of the names of compiled functions */

enum mlp_kernel {
#define MLP_KERNEL(name) MLP_KERNEL_##name,
        MLP_KERNELS(MLP_KERNEL)
#undef MLP_KERNEL
                MLP_KERNELS_ALL
};

/* Returns the number of threads that a launch needs. */
MLP_DEVICE uint32_t mlp_threads(enum mlp_kernel kernel, const struct mlp_work *work) {
        switch (kernel) {
        case MLP_KERNEL_forward: return work->rows * work->out;
        case MLP_KERNEL_softmax: return work->rows;
        case MLP_KERNEL_gradient:
        case MLP_KERNEL_update: return (work->in + 1) * work->out;
        case MLP_KERNEL_delta: return work->rows * work->in;
        default: return 0;
        }
}

#define MLP_FLOATS(address) ((float *)(uintptr_t)(address))

/* Sum of products in a fixed order that fills a vector register of a CPU. */
MLP_DEVICE float mlp_dot(const float *a, const float *b, uint32_t count) {
        float lane[MLP_DOT_LANES] = { 0.f }, sum = 0.f;
        uint32_t i = 0;
        for (; i + MLP_DOT_LANES <= count; i += MLP_DOT_LANES)
                for (uint32_t k = 0; k < MLP_DOT_LANES; k++)
                        lane[k] += a[i + k] * b[i + k];
        for (; i < count; i++)
                sum += a[i] * b[i];
        for (uint32_t k = 0; k < MLP_DOT_LANES; k++)
                sum += lane[k];
        return sum;
}

/* Turns one row of the last layer's outputs into probabilities, leaves the row's delta, and returns the
 * label's cross entropy. */
MLP_DEVICE double mlp_softmax(float *out, float *delta, uint32_t classes, uint32_t label, uint32_t rows) {
        float top = out[0];
        double sum = 0.;
        for (uint32_t o = 1; o < classes; o++)
                top = out[o] > top ? out[o] : top;
        double label_score = (double)out[label] - (double)top;
        for (uint32_t o = 0; o < classes; o++) {
                double e = exp((double)out[o] - (double)top);
                sum += e;
                out[o] = (float)e;
        }
        for (uint32_t o = 0; o < classes; o++) {
                out[o] = (float)((double)out[o] / sum);
                delta[o] = (out[o] - (o == label ? 1.f : 0.f)) / (float)rows;
        }
        return log(sum) - label_score;
}

MLP_DEVICE void mlp_at_forward(const struct mlp_work *work, uint32_t n) {
        uint32_t row = n / work->out, o = n % work->out;
        const float *in = MLP_FLOATS(work->input) + row * work->in;
        const float *weight = MLP_FLOATS(work->weight) + o;
        float sum = MLP_FLOATS(work->bias)[o];
        for (uint32_t i = 0; i < work->in; i++)
                sum += in[i] * weight[i * work->out];
        MLP_FLOATS(work->output)[n] = work->is_last || sum > 0.f ? sum : 0.f;
}

MLP_DEVICE void mlp_at_softmax(const struct mlp_work *work, uint32_t row) {
        const uint8_t *label = (const uint8_t *)(uintptr_t)work->label;
        double *loss = (double *)(uintptr_t)work->loss;
        loss[row] = mlp_softmax(MLP_FLOATS(work->output) + row * work->out,
                                MLP_FLOATS(work->delta) + row * work->out, work->out, label[row], work->rows);
}

/* Computes the gradient of a weight, or, for the last `out` of n, of a bias. */
MLP_DEVICE void mlp_at_gradient(const struct mlp_work *work, uint32_t n) {
        uint32_t i = n / work->out, o = n % work->out;
        const float *delta = MLP_FLOATS(work->delta) + o, *in = MLP_FLOATS(work->input) + i;
        float sum = 0.f;
        if (i == work->in) {
                for (uint32_t r = 0; r < work->rows; r++)
                        sum += delta[r * work->out];
                MLP_FLOATS(work->bias_gradient)[o] = sum;
                return;
        }
        for (uint32_t r = 0; r < work->rows; r++)
                sum += in[r * work->in] * delta[r * work->out];
        MLP_FLOATS(work->weight_gradient)[n] = sum;
}

/* Computes the delta of the layer below: back through the weights, and zero where its ReLU was shut. */
MLP_DEVICE void mlp_at_delta(const struct mlp_work *work, uint32_t n) {
        uint32_t row = n / work->in, i = n % work->in;
        const float *delta = MLP_FLOATS(work->delta) + row * work->out;
        const float *weight = MLP_FLOATS(work->weight) + i * work->out;
        MLP_FLOATS(work->below)
        [n] = MLP_FLOATS(work->input)[n] > 0.f ? mlp_dot(delta, weight, work->out) : 0.f;
}

MLP_DEVICE void mlp_descend(float *value, float *velocity, float gradient, float rate, float momentum) {
        *velocity = momentum * *velocity + gradient;
        *value -= rate * *velocity;
}

MLP_DEVICE void mlp_at_update(const struct mlp_work *work, uint32_t n) {
        uint32_t weights = work->in * work->out, o = n - weights;
        if (n < weights)
                mlp_descend(MLP_FLOATS(work->weight) + n, MLP_FLOATS(work->weight_velocity) + n,
                            MLP_FLOATS(work->weight_gradient)[n], work->rate, work->momentum);
        else
                mlp_descend(MLP_FLOATS(work->bias) + o, MLP_FLOATS(work->bias_velocity) + o,
                            MLP_FLOATS(work->bias_gradient)[o], work->rate, work->momentum);
}

#endif
