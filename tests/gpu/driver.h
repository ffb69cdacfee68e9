/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, loaded at run time. Each function is asked for by cuGetProcAddress at the version whose
 * signature is used here, so a driver that is too old, or too new for one of them, is told by that function's
 * name. cuda.h renames some functions by macros; the members of struct driver are renamed with them, so
 * `cu.cuMemAlloc` is what one writes and means the v3020 signature.
 */
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_CALLS(X)                                                                                        \
        X(cuInit, 2000)                                                                                      \
        X(cuDriverGetVersion, 2020)                                                                          \
        X(cuGetErrorName, 6000)                                                                              \
        X(cuDeviceGetCount, 2000)                                                                            \
        X(cuDeviceGet, 2000)                                                                                 \
        X(cuDeviceGetName, 2000)                                                                             \
        X(cuDeviceGetUuid, 11040)                                                                            \
        X(cuDeviceGetAttribute, 2000)                                                                        \
        X(cuDeviceTotalMem, 3020)                                                                            \
        X(cuDevicePrimaryCtxRetain, 7000)                                                                    \
        X(cuCtxSetCurrent, 4000)                                                                             \
        X(cuModuleLoadData, 2000)                                                                            \
        X(cuModuleGetFunction, 2000)                                                                         \
        X(cuLaunchKernel, 4000)                                                                              \
        X(cuMemGetAllocationGranularity, 10020)                                                              \
        X(cuMemCreate, 10020)                                                                                \
        X(cuMemAddressReserve, 10020)                                                                        \
        X(cuMemMap, 10020)                                                                                   \
        X(cuMemUnmap, 10020)                                                                                 \
        X(cuMemSetAccess, 10020)                                                                             \
        X(cuMemExportToShareableHandle, 10020)                                                               \
        X(cuMemImportFromShareableHandle, 10020)                                                             \
        X(cuMemAlloc, 3020)                                                                                  \
        X(cuMemFree, 3020)                                                                                   \
        X(cuMemGetAddressRange, 3020)                                                                        \
        X(cuMemHostRegister, 6050)                                                                           \
        X(cuMemHostGetDevicePointer, 3020)                                                                   \
        X(cuMemsetD32Async, 3020)                                                                            \
        X(cuMemcpyDtoHAsync, 3020)                                                                           \
        X(cuMemcpyDtoDAsync, 3020)                                                                           \
        X(cuIpcGetMemHandle, 4010)                                                                           \
        X(cuIpcOpenMemHandle, 11000)                                                                         \
        X(cuIpcCloseMemHandle, 4010)                                                                         \
        X(cuIpcGetEventHandle, 4010)                                                                         \
        X(cuIpcOpenEventHandle, 4010)                                                                        \
        X(cuStreamCreate, 2000)                                                                              \
        X(cuStreamQuery, 2000)                                                                               \
        X(cuStreamSynchronize, 2000)                                                                         \
        X(cuStreamWaitEvent, 3020)                                                                           \
        X(cuStreamWaitValue64, 11070)                                                                        \
        X(cuStreamWriteValue64, 11070)                                                                       \
        X(cuEventCreate, 2000)                                                                               \
        X(cuEventRecord, 2000)                                                                               \
        X(cuEventQuery, 2000)                                                                                \
        X(cuEventSynchronize, 2000)                                                                          \
        X(cuEventElapsedTime, 2000)

struct driver {
#define CUDA_MEMBER(name, version) PFN_##name##_v##version name;
        CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

enum {
        KERNEL_IDLE,  /* () does nothing */
        KERNEL_BUMP,  /* (u32 *words, u32 n) adds 1 to each word */
        KERNEL_COUNT, /* (u64 *device, u64 *host, u64 ns) counts in both places until ns have passed */
        KERNEL_GAPS,  /* (u64 *gaps, u64 max, u64 ns, u64 least) notes when it did not run, see fact_slices.c
                       */
        KERNELS,
};

extern const char *const kernel_names[KERNELS];
extern const char kernels_ptx[]; /* PTX */

struct actor;

/* Calls a driver function, and ends the fact with "error" if it fails, or if the driver does not have it. */
#define CU(actor, name, ...)                                                                                 \
        driver_check((actor), #name,                                                                         \
                     (driver_begin((actor), #name, (actor)->cu.name != NULL),                                \
                      (actor)->cu.name(__VA_ARGS__)))

/* Calls a driver function that may fail: its result. */
#define CU_TRY(actor, name, ...)                                                                             \
        (driver_begin((actor), #name, (actor)->cu.name != NULL),                                             \
         driver_end((actor), (actor)->cu.name(__VA_ARGS__)))

void driver_begin(struct actor *actor, const char *name, bool there);
CUresult driver_end(struct actor *actor, CUresult result);
void driver_check(struct actor *actor, const char *name, CUresult result);

/* "CUDA_ERROR_INVALID_VALUE", or "success", or the number of an error that the driver cannot name. The text
 * is valid until the fourth call after this one. */
const char *driver_name(struct actor *actor, CUresult result);

/* Loads the library and its functions. Returns NULL, or why it cannot be: no library (then *library is
 * false), or none that can be asked for functions. Functions that it does not have are NULL, and named in
 * `missing` ("": none). */
const char *driver_load(struct driver *driver, const char *path, bool *library, char *missing, size_t size);

/* Loads the driver, and makes device 0 and its primary context current. */
void driver_open(struct actor *actor);

/* A stream that does not wait for the legacy default stream. */
CUstream driver_stream(struct actor *actor);

/* Waits for the stream. */
void driver_sync(struct actor *actor, CUstream stream);

/* One word of device memory, copied in `stream`; _try: the result of the first call that fails. */
uint32_t driver_read32(struct actor *actor, CUstream stream, CUdeviceptr address);
uint64_t driver_read64(struct actor *actor, CUstream stream, CUdeviceptr address);
CUresult driver_read32_try(struct actor *actor, CUstream stream, CUdeviceptr address, uint32_t *word);

/* Sets all words of a range whose size is in bytes, and waits. */
void driver_fill(struct actor *actor, CUstream stream, CUdeviceptr address, size_t size, uint32_t word);

/* Launches one thread of a kernel. */
void driver_launch(struct actor *actor, CUstream stream, unsigned kernel, void **arguments);

/* Adds 1 to each word of a range, by a kernel with a thread for each, and returns what waiting for it
 * returned. */
CUresult driver_bump(struct actor *actor, CUstream stream, CUdeviceptr address, size_t size);

/* Keeps the whole card busy for a moment: the clocks of an idle one are low. Everything that is loaded late
 * is loaded then. */
void driver_warm_up(struct actor *actor, CUstream stream);

/* Host memory that a descriptor names, mapped here and registered with the driver: both addresses are of the
 * same bytes. */
struct page {
        int fd;
        size_t size;
        uint64_t *host;
        CUdeviceptr device;
};

/* The two words in which KERNEL_COUNT counts: one in device memory, and the first one of a page, both 0 at
 * first. */
struct counter {
        CUdeviceptr device;
        struct page page;
};

struct counter counter_new(struct actor *actor, CUstream stream);
void counter_launch(struct actor *actor, CUstream stream, struct counter *counter, uint64_t ns);

/* The first word of it, as another process or the card has written it. */
uint64_t page_word(const struct page *page);

/* A new memfd, or one that was received; size is a multiple of the page size. */
struct page page_new(struct actor *actor, size_t size);
struct page page_open(struct actor *actor, int fd, size_t size);
