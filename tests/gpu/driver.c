/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's functions, and the few things that nearly every fact does with them.
 */
#include "driver.h"

#include "actor.h"
#include "clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        WARM_NS = 300 * 1000 * 1000,
        COUNTER_PAGE = 65536, /* a whole page, of any size that is in use */
};

const char *const kernel_names[KERNELS] = {
        [KERNEL_IDLE] = "idle",
        [KERNEL_BUMP] = "bump",
        [KERNEL_COUNT] = "count",
        [KERNEL_GAPS] = "gaps",
};

void driver_begin(struct actor *actor, const char *name, bool there) {
        if (!there)
                actor_fail(actor, "%s: the driver has no %s", actor->options->role, name);
        actor_doing(actor, name);
}

CUresult driver_end(struct actor *actor, CUresult result) {
        actor_doing(actor, NULL);
        return result;
}

void driver_check(struct actor *actor, const char *name, CUresult result) {
        actor_doing(actor, NULL);
        if (result != CUDA_SUCCESS)
                actor_fail(actor, "%s: %s: %s", actor->options->role, name, driver_name(actor, result));
}

const char *driver_name(struct actor *actor, CUresult result) {
        static char text[4][64];
        static unsigned next;
        const char *name = NULL;
        char *out = text[next++ % 4];

        if (result == CUDA_SUCCESS)
                return "success";
        if (actor->cu.cuGetErrorName != NULL && actor->cu.cuGetErrorName(result, &name) == CUDA_SUCCESS &&
            name != NULL)
                snprintf(out, sizeof text[0], "%s", name);
        else
                snprintf(out, sizeof text[0], "error %d", (int)result);
        return out;
}

/* The function at that version, or NULL and its name in `missing`. */
static void *driver_resolve(PFN_cuGetProcAddress_v12000 get, const char *name, int version, char *missing,
                            size_t size) {
        CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        void *function = NULL;
        CUresult result = get(name, &function, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
        size_t used = strlen(missing);

        if (result == CUDA_SUCCESS && found == CU_GET_PROC_ADDRESS_SUCCESS && function != NULL)
                return function;
        snprintf(missing + used, size - used, "%s%s as of CUDA %d.%d", used > 0 ? ", " : "", name,
                 version / 1000, version % 1000 / 10);
        return NULL;
}

/* A library by its path; by a mere name also where containers put drivers that their loader does not know. */
static void *driver_open_library(const char *path) {
        static const char *const folders[] = { "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
                                               "/usr/lib/x86_64-linux-gnu", "/usr/lib64" };
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        char full[512];

        for (size_t i = 0;
             library == NULL && strchr(path, '/') == NULL && i < sizeof folders / sizeof *folders; i++) {
                snprintf(full, sizeof full, "%s/%s", folders[i], path);
                if (access(full, F_OK) == 0)
                        library = dlopen(full, RTLD_NOW | RTLD_LOCAL);
        }
        return library;
}

const char *driver_load(struct driver *driver, const char *path, bool *library, char *missing, size_t size) {
        static char why[256];
        PFN_cuGetProcAddress_v12000 get;
        void *handle = driver_open_library(path);

        missing[0] = '\0';
        *library = handle != NULL;
        if (handle == NULL) {
                dlerror();
                dlopen(path, RTLD_NOW | RTLD_LOCAL);
                snprintf(why, sizeof why, "%s", dlerror());
                return why;
        }
        *(void **)&get = dlsym(handle, "cuGetProcAddress_v2");
        if (get == NULL) {
                snprintf(why, sizeof why, "%s has no cuGetProcAddress_v2: the driver is older than CUDA 12",
                         path);
                return why;
        }
#define CUDA_RESOLVE(name, version)                                                                          \
        *(void **)&driver->name = driver_resolve(get, #name, version, missing, size);
        CUDA_CALLS(CUDA_RESOLVE)
#undef CUDA_RESOLVE
        return NULL;
}

void driver_open(struct actor *actor) {
        const char *problem;
        CUcontext context;
        char missing[1024];
        bool library;

        actor_doing(actor, "loading the driver library");
        problem = driver_load(&actor->cu, actor->options->libcuda, &library, missing, sizeof missing);
        actor_doing(actor, NULL);
        if (problem != NULL)
                actor_fail(actor, "%s: %s", actor->options->role, problem);
        CU(actor, cuInit, 0);
        CU(actor, cuDeviceGet, &actor->device, 0);
        CU(actor, cuDevicePrimaryCtxRetain, &context, actor->device);
        CU(actor, cuCtxSetCurrent, context);
}

/* Compiled when the first one is needed: most facts need none, and should not fail for them. */
static CUfunction driver_kernel(struct actor *actor, unsigned which) {
        CUmodule module;

        if (actor->kernel[which] == NULL) {
                CU(actor, cuModuleLoadData, &module, kernels_ptx);
                for (unsigned i = 0; i < KERNELS; i++)
                        CU(actor, cuModuleGetFunction, &actor->kernel[i], module, kernel_names[i]);
        }
        return actor->kernel[which];
}

CUstream driver_stream(struct actor *actor) {
        CUstream stream;

        CU(actor, cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        return stream;
}

void driver_sync(struct actor *actor, CUstream stream) {
        CU(actor, cuStreamSynchronize, stream);
}

CUresult driver_read32_try(struct actor *actor, CUstream stream, CUdeviceptr address, uint32_t *word) {
        CUresult result = CU_TRY(actor, cuMemcpyDtoHAsync, word, address, sizeof *word, stream);

        return result != CUDA_SUCCESS ? result : CU_TRY(actor, cuStreamSynchronize, stream);
}

uint32_t driver_read32(struct actor *actor, CUstream stream, CUdeviceptr address) {
        uint32_t word = 0;

        CU(actor, cuMemcpyDtoHAsync, &word, address, sizeof word, stream);
        driver_sync(actor, stream);
        return word;
}

uint64_t driver_read64(struct actor *actor, CUstream stream, CUdeviceptr address) {
        uint64_t word = 0;

        CU(actor, cuMemcpyDtoHAsync, &word, address, sizeof word, stream);
        driver_sync(actor, stream);
        return word;
}

void driver_fill(struct actor *actor, CUstream stream, CUdeviceptr address, size_t size, uint32_t word) {
        CU(actor, cuMemsetD32Async, address, word, size / sizeof word, stream);
        driver_sync(actor, stream);
}

void driver_launch(struct actor *actor, CUstream stream, unsigned which, void **arguments) {
        CUfunction function = driver_kernel(actor, which);

        CU(actor, cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

void driver_warm_up(struct actor *actor, CUstream stream) {
        const size_t size = (size_t)64 << 20;
        int64_t until = clock_ns() + WARM_NS;
        CUdeviceptr memory;

        CU(actor, cuMemAlloc, &memory, size);
        do
                driver_check(actor, "a kernel", driver_bump(actor, stream, memory, size));
        while (clock_ns() < until);
        CU(actor, cuMemFree, memory);
}

CUresult driver_bump(struct actor *actor, CUstream stream, CUdeviceptr address, size_t size) {
        CUfunction function = driver_kernel(actor, KERNEL_BUMP);
        const unsigned threads = 256;
        uint32_t n = (uint32_t)(size / sizeof(uint32_t));
        void *arguments[] = { &address, &n };
        CUresult result = CU_TRY(actor, cuLaunchKernel, function, (n + threads - 1) / threads, 1, 1, threads,
                                 1, 1, 0, stream, arguments, NULL);

        return result != CUDA_SUCCESS ? result : CU_TRY(actor, cuStreamSynchronize, stream);
}

uint64_t page_word(const struct page *page) {
        return __atomic_load_n(&page->host[0], __ATOMIC_ACQUIRE);
}

struct page page_open(struct actor *actor, int fd, size_t size) {
        struct page page = { .fd = fd, .size = size };
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (memory == MAP_FAILED)
                actor_fail(actor, "mmap of a memfd: %s", strerror(errno));
        page.host = memory;
        CU(actor, cuMemHostRegister, memory, size,
           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        CU(actor, cuMemHostGetDevicePointer, &page.device, memory, 0);
        return page;
}

struct page page_new(struct actor *actor, size_t size) {
        int fd = memfd_create("probe-page", MFD_CLOEXEC);

        if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
                actor_fail(actor, "memfd of %zu bytes: %s", size, strerror(errno));
        return page_open(actor, fd, size);
}

struct counter counter_new(struct actor *actor, CUstream stream) {
        struct counter counter = { .page = page_new(actor, COUNTER_PAGE) };

        CU(actor, cuMemAlloc, &counter.device, sizeof(uint64_t));
        driver_fill(actor, stream, counter.device, sizeof(uint64_t), 0);
        return counter;
}

void counter_launch(struct actor *actor, CUstream stream, struct counter *counter, uint64_t ns) {
        driver_launch(actor, stream, KERNEL_COUNT,
                      (void *[]){ &counter->device, &counter->page.device, &ns });
}
