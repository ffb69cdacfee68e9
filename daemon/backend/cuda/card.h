/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU as the backend uses it: the driver, the GPU's primary context, and the kernels, all loaded when the
 * daemon starts, so that nothing is loaded in the middle of a step. Refuses GPUs that lack what shared memory
 * needs.
 */
#pragma once

#include "grid.h"
#include "proto/cuda.h"

struct card {
        struct cuda cuda;
        cuda_device device;
        cuda_context context; /* NULL if it was not opened */
        char name[64], uuid[CUDA_UUID_TEXT], architecture[16];
        int processors;     /* multiprocessors */
        bool mps, rdma;     /* rdma: network adapters can be given its memory */
        uint64_t opened;    /* clock_now() in card_open() */
        size_t bytes;       /* bytes of its memory */
        size_t granularity; /* of allocations, in bytes */
        cuda_function kernel[GRID_KERNELS];
};

/* Opens a card. `device` is the text after "cuda:": a number, or a UUID as nvidia-smi prints it. `library` is
 * the path of the driver's library, or NULL. 0; or -ENODEV or -ENOTSUP with one sentence in `error`. The
 * context is current in the calling thread afterwards. */
int card_open(struct card *card, const char *device, const char *library, char *error, size_t size);
void card_close(struct card *card);
/* Makes the context current in the calling thread. */
cuda_result card_enter(const struct card *card);
