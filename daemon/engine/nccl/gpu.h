/* SPDX-License-Identifier: Apache-2.0 */
/* What all communicators of the engine use: the driver, NCCL, and the GPU's primary context, which is that of
 * the backend, too. */
#pragma once

#include "proto/cuda.h"
#include "proto/nccl.h"

struct gpu {
        struct cuda cuda;
        struct nccl nccl;
        cuda_device device;
        int processors;       /* multiprocessors */
        cuda_context context; /* NULL: it was not opened */
        char uuid[CUDA_UUID_TEXT];
};

/* Libraries may be NULL, see cuda_load() and nccl_load(). 0 or a negative errno, with a sentence in `error`.
 * */
int gpu_open(struct gpu *gpu, const char *uuid, const char *driver, const char *library, char *error,
             size_t size);
void gpu_close(struct gpu *gpu);
/* The calling thread works with it from now on. */
cuda_result gpu_enter(const struct gpu *gpu);
