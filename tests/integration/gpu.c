/* SPDX-License-Identifier: Apache-2.0 */
/* See gpu.h. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cuda.h"

static struct cuda cuda;
/* A stream of the GPU that is used at the moment. */
static cuda_stream stream;

#define GPUS 4

static void check(cuda_result r, const char *what) {
        if (r == CUDA_OK)
                return;
        fprintf(stderr, "%s: CUDA error %d\n", what, r);
        exit(70);
}

void *gpu_stream(void) {
        char error[512];

        if (stream != NULL || getenv("MEMBER_CUDA") == NULL)
                return stream;
        if (cuda_load(&cuda, NULL, error, sizeof(error)) < 0) {
                fprintf(stderr, "%s\n", error);
                exit(70);
        }
        const char *first = getenv("MEMBER_GPU");
        gpu_use(first != NULL ? (unsigned)atoi(first) : 0);
        return stream;
}

void gpu_use(unsigned ordinal) {
        static struct {
                cuda_context context;
                cuda_stream stream;
        } all[GPUS], *gpu;
        cuda_device device;

        gpu = &all[ordinal % GPUS];
        if (gpu->context == NULL) {
                check(cuda.device_get(&device, (int)ordinal), "device");
                check(cuda.primary_retain(&gpu->context, device), "context");
        }
        check(cuda.context_set(gpu->context), "current context");
        if (gpu->stream == NULL)
                check(cuda.stream_new(&gpu->stream, CUDA_STREAM_NON_BLOCKING, 0), "stream");
        stream = gpu->stream;
}

void *gpu_get(void *address, size_t bytes) {
        static void *copy;

        if (gpu_stream() == NULL)
                return address;
        copy = realloc(copy, bytes + 1);
        check(cuda.copy_out(copy, (cuda_address)(uintptr_t)address, bytes, stream), "copy from the GPU");
        check(cuda.stream_wait(stream), "stream");
        return copy;
}

void gpu_put(void *address, const void *copy, size_t bytes) {
        if (gpu_stream() != NULL)
                check(cuda.copy_in((cuda_address)(uintptr_t)address, copy, bytes, stream), "copy to the GPU");
}

unsigned char *gpu_allocate(size_t bytes) {
        cuda_address address;

        check(cuda.allocate(&address, bytes), "memory of the GPU");
        return (unsigned char *)(uintptr_t)address;
}

void gpu_free(unsigned char *address) {
        check(cuda.free((cuda_address)(uintptr_t)address), "freeing memory of the GPU");
}

bool gpu_is_waited_for(void) {
        const char *mode = getenv("MEMBER_CUDA");

        return mode != NULL && strcmp(mode, "complete") == 0;
}

void gpu_wait(void) {
        if (gpu_stream() != NULL)
                check(cuda.stream_wait(stream), "stream");
}

void gpu_capture(bool on) {
        void (*capture)(cuda_stream captured, bool on);

        gpu_stream();
        *(void **)&capture = dlsym(cuda.library, "fake_gpu_capture");
        capture(stream, on);
}
