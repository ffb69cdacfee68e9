/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/nccl/gpu.h"

#include <errno.h>
#include <stdio.h>

static int gpu_choose(struct gpu *gpu, const char *uuid, char *error, size_t size) {
        char name[64];
        cuda_result r;

        if (cuda_find_gpu(&gpu->cuda, uuid, &gpu->device) < 0) {
                snprintf(error, size, "there is no GPU %s any more", uuid);
                return -ENODEV;
        }
        gpu->cuda.device_attribute(&gpu->processors, CUDA_DEVICE_MULTIPROCESSORS, gpu->device);
        r = gpu->cuda.primary_retain(&gpu->context, gpu->device);
        if (r == CUDA_OK)
                return 0;
        gpu->context = NULL;
        snprintf(error, size, "no context of GPU %s can be had: %s", uuid,
                 cuda_error(&gpu->cuda, r, name, sizeof(name)));
        return -ENODEV;
}

int gpu_open(struct gpu *gpu, const char *uuid, const char *driver, const char *library, char *error,
             size_t size) {
        *gpu = (struct gpu){ 0 };
        snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", uuid);
        int r = nccl_load(&gpu->nccl, library, error, size);
        if (r == 0)
                r = cuda_load(&gpu->cuda, driver, error, size);
        return r == 0 ? gpu_choose(gpu, uuid, error, size) : r;
}

void gpu_close(struct gpu *gpu) {
        if (gpu->context != NULL)
                gpu->cuda.primary_release(gpu->device);
        gpu->context = NULL;
}

cuda_result gpu_enter(const struct gpu *gpu) {
        return gpu->cuda.context_set(gpu->context);
}
