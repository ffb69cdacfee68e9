/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of client/examples/digits_cuda for the fake GPU: what nvcc compiles, compiled for the host. */
#include "client/examples/mlp_body.h"
#include "tests/fakes/kernel.h"

static const size_t parameter_bytes[] = { sizeof(struct mlp_work) };

#define RUN(name)                                                                                            \
        static void run_##name(void **parameters, const unsigned grid[3], const unsigned block[3]) {         \
                const struct mlp_work *work = parameters[0];                                                 \
                if (block[0] != MLP_THREADS)                                                                 \
                        __builtin_trap();                                                                    \
                for (uint32_t n = 0; n < grid[0] * MLP_THREADS; n++)                                         \
                        if (n < mlp_threads(MLP_KERNEL_##name, work))                                        \
                                mlp_at_##name(work, n);                                                      \
        }
MLP_KERNELS(RUN)

static void ranges_forward(void **parameters, fake_range_fn add, void *data) {
        const struct mlp_work *work = parameters[0];
        add(data, work->input, sizeof(float) * work->rows * work->in, false);
        add(data, work->weight, sizeof(float) * work->in * work->out, false);
        add(data, work->bias, sizeof(float) * work->out, false);
        add(data, work->output, sizeof(float) * work->rows * work->out, true);
}

static void ranges_softmax(void **parameters, fake_range_fn add, void *data) {
        const struct mlp_work *work = parameters[0];
        add(data, work->label, work->rows, false);
        add(data, work->output, sizeof(float) * work->rows * work->out, true);
        add(data, work->delta, sizeof(float) * work->rows * work->out, true);
        add(data, work->loss, sizeof(double) * work->rows, true);
}

static void ranges_gradient(void **parameters, fake_range_fn add, void *data) {
        const struct mlp_work *work = parameters[0];
        add(data, work->input, sizeof(float) * work->rows * work->in, false);
        add(data, work->delta, sizeof(float) * work->rows * work->out, false);
        add(data, work->weight_gradient, sizeof(float) * work->in * work->out, true);
        add(data, work->bias_gradient, sizeof(float) * work->out, true);
}

static void ranges_delta(void **parameters, fake_range_fn add, void *data) {
        const struct mlp_work *work = parameters[0];
        add(data, work->input, sizeof(float) * work->rows * work->in, false);
        add(data, work->weight, sizeof(float) * work->in * work->out, false);
        add(data, work->delta, sizeof(float) * work->rows * work->out, false);
        add(data, work->below, sizeof(float) * work->rows * work->in, true);
}

static void ranges_update(void **parameters, fake_range_fn add, void *data) {
        const struct mlp_work *work = parameters[0];
        add(data, work->weight_gradient, sizeof(float) * work->in * work->out, false);
        add(data, work->bias_gradient, sizeof(float) * work->out, false);
        add(data, work->weight, sizeof(float) * work->in * work->out, true);
        add(data, work->bias, sizeof(float) * work->out, true);
        add(data, work->weight_velocity, sizeof(float) * work->in * work->out, true);
        add(data, work->bias_velocity, sizeof(float) * work->out, true);
}

static const struct fake_kernel kernels[] = {
#define ROW(name) { MLP_PREFIX #name, 1, parameter_bytes, run_##name, ranges_##name },
        MLP_KERNELS(ROW)
};

__attribute__((visibility("default"))) const struct fake_kernel *fake_kernels(size_t *n);
const struct fake_kernel *fake_kernels(size_t *n) {
        *n = sizeof(kernels) / sizeof(kernels[0]);
        return kernels;
}
