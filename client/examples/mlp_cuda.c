/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perceptron on a GPU. Its memory is one allocation there, and all of its work goes into one stream, in
 * order. The kernels are in mlp_body.h. The driver is used without a CUDA toolkit, as gradsyncd does, in the
 * GPU's primary context, which gradients and other libraries share.
 */
#include "mlp.h"

#include "mlp_body.h"
#include "mlp_shape.h"
#include "proto/cuda.h"

#include <stdio.h>
#include <stdlib.h>

extern const unsigned char mlp_image[]; /* PTX with a NUL at its end, or a fat binary */

struct mlp_gpu {
        struct cuda cuda;
        int number;
        cuda_device device;
        cuda_stream stream;
        cuda_function kernel[MLP_KERNELS_ALL];
        cuda_address memory; /* loss, then the memory of mlp->memory, then input and label */
        cuda_address loss, input, label;
        double *row_loss; /* this and `copy` hold copies from the GPU, in memory of the host */
        float *copy;
};

static const char *const kernel_names[MLP_KERNELS_ALL] = {
#define KERNEL_NAME(name) MLP_PREFIX #name,
        MLP_KERNELS(KERNEL_NAME)
#undef KERNEL_NAME
};

static void gpu_check(const struct mlp_gpu *gpu, const char *what, cuda_result result) {
        char name[64];

        if (result == CUDA_OK)
                return;
        fprintf(stderr, "digits: GPU %d: %s: %s\n", gpu->number, what,
                cuda_error(&gpu->cuda, result, name, sizeof(name)));
        exit(1);
}

/* --- Setting up --- */

static int gpu_find(struct mlp_gpu *gpu) {
        char error[512];
        int n = 0;

        if (cuda_load(&gpu->cuda, getenv("GRADSYNC_CUDA_DRIVER"), error, sizeof(error)) < 0) {
                fprintf(stderr, "digits: cannot use a GPU: %s\n", error);
                return -1;
        }
        gpu_check(gpu, "cannot be counted", gpu->cuda.device_count(&n));
        if (gpu->number >= n) {
                fprintf(stderr, "digits: there is no GPU %d: the driver shows %d here, counted from 0\n",
                        gpu->number, n);
                return -1;
        }
        gpu_check(gpu, "cannot be used", gpu->cuda.device_get(&gpu->device, gpu->number));
        return 0;
}

static void gpu_start(struct mlp_gpu *gpu) {
        cuda_context context;
        cuda_module module;

        gpu_check(gpu, "no context", gpu->cuda.primary_retain(&context, gpu->device));
        gpu_check(gpu, "no context", gpu->cuda.context_set(context));
        gpu_check(gpu, "no stream", gpu->cuda.stream_new(&gpu->stream, CUDA_STREAM_NON_BLOCKING, 0));
        gpu_check(gpu, "the kernels cannot be loaded", gpu->cuda.module_load(&module, mlp_image));
        for (unsigned k = 0; k < MLP_KERNELS_ALL; k++)
                gpu_check(gpu, kernel_names[k],
                          gpu->cuda.module_function(&gpu->kernel[k], module, kernel_names[k]));
}

/* Allocates memory for `count` numbers of the model, and for the input, labels and losses of a pass. */
static int gpu_allocate(struct mlp_gpu *gpu, struct mlp *mlp, size_t count) {
        size_t in = mlp->layer[0].in, out = mlp->layer[mlp->layers - 1].out, batch = mlp->batch;
        size_t loss = batch * sizeof(double), model = count * sizeof(float),
               input = batch * in * sizeof(float);
        size_t copied = 2 * mlp->params > batch * out ? 2 * mlp->params : batch * out;

        gpu->row_loss = calloc(batch, sizeof(*gpu->row_loss));
        gpu->copy = calloc(copied, sizeof(*gpu->copy));
        if (!gpu->row_loss || !gpu->copy) {
                fprintf(stderr, "digits: out of memory\n");
                return -1;
        }
        gpu_check(gpu, "no memory", gpu->cuda.allocate(&gpu->memory, loss + model + input + batch));
        gpu->loss = gpu->memory;
        gpu->input = gpu->memory + loss + model;
        gpu->label = gpu->input + input;
        mlp_place(mlp, MLP_FLOATS(gpu->memory + loss));
        return 0;
}

static void gpu_put(const struct mlp_gpu *gpu, cuda_address to, const void *from, size_t bytes) {
        gpu_check(gpu, "a copy to the GPU failed", gpu->cuda.copy_in(to, from, bytes, gpu->stream));
}

int mlp_init(struct mlp *mlp, int device, const size_t *widths, size_t layers, size_t batch, uint64_t seed) {
        size_t count = mlp_shape(mlp, widths, layers, batch);
        struct mlp_gpu *gpu = calloc(1, sizeof(*gpu));

        if (!gpu) {
                fprintf(stderr, "digits: out of memory\n");
                return -1;
        }
        mlp->gpu = gpu;
        gpu->number = device < 0 ? 0 : device;
        if (gpu_find(gpu)) {
                free(gpu);
                return -1;
        }
        gpu_start(gpu);
        if (gpu_allocate(gpu, mlp, count)) {
                mlp_deinit(mlp);
                return -1;
        }
        mlp_fill(mlp, gpu->copy, seed); /* the velocities after the parameters are zero */
        gpu_put(gpu, (uintptr_t)mlp->memory, gpu->copy, 2 * mlp->params * sizeof(float));
        return 0;
}

void mlp_deinit(struct mlp *mlp) {
        struct mlp_gpu *gpu = mlp->gpu;

        if (gpu->memory)
                gpu_check(gpu, "memory cannot be freed", gpu->cuda.free(gpu->memory));
        gpu_check(gpu, "the stream cannot be freed", gpu->cuda.stream_free(gpu->stream));
        gpu_check(gpu, "the context cannot be given back", gpu->cuda.primary_release(gpu->device));
        free(gpu->row_loss);
        free(gpu->copy);
        free(gpu);
        *mlp = (struct mlp){ 0 };
}

/* --- Work --- */

static uint64_t address_of(const void *pointer) {
        return (uintptr_t)pointer;
}

static void gpu_launch(const struct mlp *mlp, enum mlp_kernel kernel, struct mlp_work *work) {
        const struct mlp_gpu *gpu = mlp->gpu;
        unsigned blocks = (mlp_threads(kernel, work) + MLP_THREADS - 1) / MLP_THREADS;
        void *parameters[] = { work };

        gpu_check(gpu, kernel_names[kernel],
                  gpu->cuda.launch(gpu->kernel[kernel], blocks, 1, 1, MLP_THREADS, 1, 1, 0, gpu->stream,
                                   parameters, NULL));
}

/* The argument of a launch for a layer, with the fields that do not depend on the kernel. */
static struct mlp_work work_of(const struct mlp *mlp, size_t l) {
        const struct mlp_layer *layer = &mlp->layer[l];

        return (struct mlp_work){
                .input = address_of(l ? mlp->layer[l - 1].output : mlp->input),
                .weight = address_of(layer->weight),
                .bias = address_of(layer->bias),
                .output = address_of(layer->output),
                .delta = address_of(layer->delta),
                .weight_velocity = address_of(layer->weight_velocity),
                .bias_velocity = address_of(layer->bias_velocity),
                .below = l ? address_of(mlp->layer[l - 1].delta) : 0,
                .label = mlp->gpu->label,
                .loss = mlp->gpu->loss,
                .in = (uint32_t)layer->in,
                .out = (uint32_t)layer->out,
                .rows = (uint32_t)mlp->rows,
                .is_last = l + 1 == mlp->layers,
        };
}

static void gpu_forward(struct mlp *mlp, const float *input, size_t rows) {
        struct mlp_gpu *gpu = mlp->gpu;

        gpu_put(gpu, gpu->input, input, rows * mlp->layer[0].in * sizeof(*input));
        mlp->input = MLP_FLOATS(gpu->input);
        mlp->rows = rows;
        for (size_t l = 0; l < mlp->layers; l++) {
                struct mlp_work work = work_of(mlp, l);
                gpu_launch(mlp, MLP_KERNEL_forward, &work);
        }
}

void mlp_forward(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows) {
        gpu_forward(mlp, input, rows);
        gpu_put(mlp->gpu, mlp->gpu->label, label, rows);
        struct mlp_work work = work_of(mlp, mlp->layers - 1);
        gpu_launch(mlp, MLP_KERNEL_softmax, &work);
}

void mlp_backward(struct mlp *mlp, size_t l, float *weight_gradient, float *bias_gradient) {
        struct mlp_work work = work_of(mlp, l);

        work.weight_gradient = address_of(weight_gradient);
        work.bias_gradient = address_of(bias_gradient);
        gpu_launch(mlp, MLP_KERNEL_gradient, &work);
        if (l)
                gpu_launch(mlp, MLP_KERNEL_delta, &work);
}

void mlp_update(struct mlp *mlp, size_t l, const float *weight_gradient, const float *bias_gradient,
                float rate, float momentum) {
        struct mlp_work work = work_of(mlp, l);

        work.weight_gradient = address_of(weight_gradient);
        work.bias_gradient = address_of(bias_gradient);
        work.rate = rate;
        work.momentum = momentum;
        gpu_launch(mlp, MLP_KERNEL_update, &work);
}

/* --- Results for the CPU --- */

static void gpu_get(const struct mlp_gpu *gpu, void *to, cuda_address from, size_t bytes) {
        gpu_check(gpu, "a copy from the GPU failed", gpu->cuda.copy_out(to, from, bytes, gpu->stream));
        gpu_check(gpu, "its work failed", gpu->cuda.stream_wait(gpu->stream));
}

double mlp_loss(struct mlp *mlp) {
        struct mlp_gpu *gpu = mlp->gpu;
        double loss = 0.;

        gpu_get(gpu, gpu->row_loss, gpu->loss, mlp->rows * sizeof(*gpu->row_loss));
        for (size_t r = 0; r < mlp->rows; r++)
                loss += gpu->row_loss[r];
        return loss;
}

int mlp_device(const struct mlp *mlp) {
        return mlp->gpu->number;
}

void *mlp_stream(const struct mlp *mlp) {
        return mlp->gpu->stream;
}

void mlp_wait(struct mlp *mlp) {
        gpu_check(mlp->gpu, "its work failed", mlp->gpu->cuda.stream_wait(mlp->gpu->stream));
}

const float *mlp_parameters(struct mlp *mlp) {
        gpu_get(mlp->gpu, mlp->gpu->copy, address_of(mlp->memory), mlp->params * sizeof(float));
        return mlp->gpu->copy;
}

const float *mlp_scores(struct mlp *mlp, const float *input, size_t rows) {
        const struct mlp_layer *last = &mlp->layer[mlp->layers - 1];

        gpu_forward(mlp, input, rows);
        gpu_get(mlp->gpu, mlp->gpu->copy, address_of(last->output), rows * last->out * sizeof(float));
        return mlp->gpu->copy;
}
