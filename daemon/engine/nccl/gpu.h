/* SPDX-License-Identifier: Apache-2.0 */
/* State that all communicators of the engine use: the driver, NCCL, and the GPU's primary context, which the
 * backend uses, too. */
#pragma once

#include "proto/cuda.h"
#include "proto/nccl.h"

struct gpu {
        struct cuda cuda;
        struct nccl nccl;
        cuda_device device;
        int processors;       /* multiprocessors */
        cuda_context context; /* NULL if it was not opened */
        char uuid[CUDA_UUID_TEXT];
};

/* Opens the GPU. `driver` and `library` may be NULL, see cuda_load() and nccl_load(). 0 or a negative errno,
 * with a sentence in `error`. */
int gpu_open(struct gpu *gpu, const char *uuid, const char *driver, const char *library, char *error,
             size_t size);
void gpu_close(struct gpu *gpu);
/* Makes the GPU's context current in the calling thread. */
cuda_result gpu_enter(const struct gpu *gpu);
