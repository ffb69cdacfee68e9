/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver as both sides use it, loaded at run time: no CUDA toolkit is needed to build this, and
 * programs that do not serve a GPU never load it. Types and constants are declared again, under names of our
 * own; a test compares them with cuda.h and cudaTypedefs.h where these exist.
 *
 * Each function is requested from cuGetProcAddress_v2 at the version whose signature is declared here, so a
 * driver that lacks one is refused by that function's name. All functions exist since CUDA 12; the driver as
 * a whole must be CUDA_DRIVER_LEAST, which the compiled kernels need.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_DRIVER_LEAST 13000 /* as cuDriverGetVersion counts: CUDA 13.0, which came with driver 580 */
#define CUDA_UUID 16            /* bytes */
#define CUDA_UUID_TEXT 41       /* "GPU-" and 36 characters, and the NUL */

typedef int cuda_result;                 /* CUresult */
typedef int cuda_device;                 /* CUdevice */
typedef unsigned long long cuda_address; /* CUdeviceptr */
typedef unsigned long long cuda_handle;  /* CUmemGenericAllocationHandle */
typedef struct CUctx_st *cuda_context;
typedef struct CUmod_st *cuda_module;
typedef struct CUfunc_st *cuda_function;
typedef struct CUstream_st *cuda_stream;
typedef struct CUevent_st *cuda_event;

/* CUresult, the values in use */
enum {
        CUDA_OK = 0,
        CUDA_INVALID_VALUE = 1,
        CUDA_OUT_OF_MEMORY = 2,
        CUDA_DEINITIALIZED = 4,
        CUDA_NO_DEVICE = 100,
        CUDA_INVALID_DEVICE = 101,
        CUDA_INVALID_CONTEXT = 201,
        CUDA_ALREADY_MAPPED = 208,
        CUDA_ECC = 214,
        CUDA_NVLINK = 220,
        CUDA_CONTAINED = 226,
        CUDA_INVALID_HANDLE = 400,
        CUDA_NOT_FOUND = 500,
        CUDA_NOT_READY = 600,
        CUDA_ILLEGAL_ADDRESS = 700,
        CUDA_LAUNCH_TIMEOUT = 702,
        CUDA_CONTEXT_DESTROYED = 709,
        CUDA_ASSERT = 710,
        CUDA_HARDWARE_STACK = 714, /* from here to CUDA_LAUNCH_FAILED: faults of kernels */
        CUDA_LAUNCH_FAILED = 719,
        CUDA_NOT_PERMITTED = 800,
        CUDA_NOT_SUPPORTED = 801,
        CUDA_STREAM_CAPTURE_UNSUPPORTED = 900,
        CUDA_STREAM_CAPTURE_IMPLICIT = 906,
        CUDA_UNKNOWN = 999,
};

/* CUdevice_attribute */
enum {
        CUDA_DEVICE_MULTIPROCESSORS = 16,
        CUDA_DEVICE_COMPUTE_MODE = 20,
        CUDA_DEVICE_L2 = 38, /* bytes of its cache */
        CUDA_DEVICE_MAJOR = 75,
        CUDA_DEVICE_MINOR = 76,
        CUDA_DEVICE_VMM = 102,
        CUDA_DEVICE_FD_HANDLES = 103,
        CUDA_DEVICE_RDMA = 110, /* of memory that is mapped */
        CUDA_DEVICE_MPS = 133,
};

/* CUpointer_attribute */
enum {
        CUDA_POINTER_MEMORY_TYPE = 2,
        CUDA_POINTER_BUFFER_ID = 7,
        CUDA_POINTER_IS_MANAGED = 8,
        CUDA_POINTER_DEVICE_ORDINAL = 9,
        CUDA_POINTER_LEGACY_IPC = 10,
        CUDA_POINTER_RANGE_START = 11,
        CUDA_POINTER_RANGE_SIZE = 12,
};

enum {
        CUDA_MEMORY_HOST = 1, /* CUmemorytype */
        CUDA_MEMORY_DEVICE = 2,
        CUDA_CTX_BLOCKING_SYNC = 4,   /* CUctx_flags: waits sleep instead of spinning */
        CUDA_STREAM_NON_BLOCKING = 1, /* CUstream_flags: it does not wait for the legacy default stream */
        CUDA_EVENT_BLOCKING_SYNC = 1, /* CUevent_flags */
        CUDA_EVENT_DISABLE_TIMING = 2,
        CUDA_HOST_DEVICEMAP = 2,
        CUDA_IPC_LAZY_PEER_ACCESS = 1,
        CUDA_GRANULARITY_RECOMMENDED = 1,
        CUDA_LOCATION_DEVICE = 1,
        CUDA_ALLOCATION_PINNED = 1,
        CUDA_HANDLE_FD = 1, /* CUmemAllocationHandleType */
        CUDA_ACCESS_READ_WRITE = 3,
        CUDA_COMPUTE_EXCLUSIVE_PROCESS = 3,
        CUDA_COMPUTE_PROHIBITED = 2,
};

struct cuda_location { /* CUmemLocation */
        unsigned type;
        int id;
};

struct cuda_properties { /* CUmemAllocationProp */
        unsigned type, handle_types;
        struct cuda_location location;
        void *win32;
        struct {
                unsigned char compression, rdma;
                unsigned short usage;
                unsigned char reserved[4];
        } flags;
};

struct cuda_access { /* CUmemAccessDesc */
        struct cuda_location location;
        unsigned flags;
};

struct cuda_ipc { /* CUipcMemHandle */
        char bytes[64];
};

struct cuda_uuid { /* CUuuid */
        unsigned char bytes[CUDA_UUID];
};

/* X(member, name, version, arguments) */
#define CUDA_CALLS(X)                                                                                        \
        X(init, cuInit, 2000, (unsigned flags))                                                              \
        X(driver_version, cuDriverGetVersion, 2020, (int *version))                                          \
        X(error_name, cuGetErrorName, 6000, (cuda_result error, const char **name))                          \
        X(device_count, cuDeviceGetCount, 2000, (int *count))                                                \
        X(device_get, cuDeviceGet, 2000, (cuda_device * device, int ordinal))                                \
        X(device_name, cuDeviceGetName, 2000, (char *name, int size, cuda_device device))                    \
        X(device_uuid, cuDeviceGetUuid, 11040, (struct cuda_uuid * uuid, cuda_device device))                \
        X(device_attribute, cuDeviceGetAttribute, 2000,                                                      \
          (int *value, unsigned attribute, cuda_device device))                                              \
        X(device_total, cuDeviceTotalMem, 3020, (size_t * bytes, cuda_device device))                        \
        X(primary_retain, cuDevicePrimaryCtxRetain, 7000, (cuda_context * context, cuda_device device))      \
        X(primary_release, cuDevicePrimaryCtxRelease, 11000, (cuda_device device))                           \
        X(primary_state, cuDevicePrimaryCtxGetState, 7000,                                                   \
          (cuda_device device, unsigned *flags, int *active))                                                \
        X(primary_flags, cuDevicePrimaryCtxSetFlags, 11000, (cuda_device device, unsigned flags))            \
        X(context_set, cuCtxSetCurrent, 4000, (cuda_context context))                                        \
        X(context_get, cuCtxGetCurrent, 4000, (cuda_context * context))                                      \
        X(context_device, cuCtxGetDevice, 2000, (cuda_device * device))                                      \
        X(module_load, cuModuleLoadData, 2000, (cuda_module * module, const void *image))                    \
        X(module_function, cuModuleGetFunction, 2000,                                                        \
          (cuda_function * function, cuda_module module, const char *name))                                  \
        X(launch, cuLaunchKernel, 4000,                                                                      \
          (cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
           unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda_stream stream, void **parameters, \
           void **extra))                                                                                    \
        X(memory_info, cuMemGetInfo, 3020, (size_t * free, size_t * total))                                  \
        X(granularity, cuMemGetAllocationGranularity, 10020,                                                 \
          (size_t * bytes, const struct cuda_properties *properties, unsigned option))                       \
        X(create, cuMemCreate, 10020,                                                                        \
          (cuda_handle * handle, size_t bytes, const struct cuda_properties *properties,                     \
           unsigned long long flags))                                                                        \
        X(release, cuMemRelease, 10020, (cuda_handle handle))                                                \
        X(reserve, cuMemAddressReserve, 10020,                                                               \
          (cuda_address * address, size_t bytes, size_t alignment, cuda_address wanted,                      \
           unsigned long long flags))                                                                        \
        X(unreserve, cuMemAddressFree, 10020, (cuda_address address, size_t bytes))                          \
        X(map, cuMemMap, 10020,                                                                              \
          (cuda_address address, size_t bytes, size_t offset, cuda_handle handle, unsigned long long flags)) \
        X(unmap, cuMemUnmap, 10020, (cuda_address address, size_t bytes))                                    \
        X(set_access, cuMemSetAccess, 10020,                                                                 \
          (cuda_address address, size_t bytes, const struct cuda_access *access, size_t count))              \
        X(export_handle, cuMemExportToShareableHandle, 10020,                                                \
          (void *shareable, cuda_handle handle, unsigned type, unsigned long long flags))                    \
        X(import_handle, cuMemImportFromShareableHandle, 10020,                                              \
          (cuda_handle * handle, void *shareable, unsigned type))                                            \
        X(handle_properties, cuMemGetAllocationPropertiesFromHandle, 10020,                                  \
          (struct cuda_properties * properties, cuda_handle handle))                                         \
        X(retain_handle, cuMemRetainAllocationHandle, 11000, (cuda_handle * handle, void *address))          \
        X(allocate, cuMemAlloc, 3020, (cuda_address * address, size_t bytes))                                \
        X(free, cuMemFree, 3020, (cuda_address address))                                                     \
        X(address_range, cuMemGetAddressRange, 3020,                                                         \
          (cuda_address * base, size_t * bytes, cuda_address address))                                       \
        X(pointer_attribute, cuPointerGetAttribute, 4000,                                                    \
          (void *value, unsigned attribute, cuda_address address))                                           \
        X(host_alloc, cuMemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags))                  \
        X(host_free, cuMemFreeHost, 2000, (void *address))                                                   \
        X(host_address, cuMemHostGetDevicePointer, 3020,                                                     \
          (cuda_address * address, void *host, unsigned flags))                                              \
        X(set_async, cuMemsetD8Async, 3020,                                                                  \
          (cuda_address address, unsigned char value, size_t bytes, cuda_stream stream))                     \
        X(copy_in, cuMemcpyHtoDAsync, 3020,                                                                  \
          (cuda_address to, const void *from, size_t bytes, cuda_stream stream))                             \
        X(copy_out, cuMemcpyDtoHAsync, 3020,                                                                 \
          (void *to, cuda_address from, size_t bytes, cuda_stream stream))                                   \
        X(copy, cuMemcpyDtoDAsync, 3020,                                                                     \
          (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream))                            \
        X(ipc_get, cuIpcGetMemHandle, 4010, (struct cuda_ipc * handle, cuda_address base))                   \
        X(ipc_open, cuIpcOpenMemHandle, 11000,                                                               \
          (cuda_address * base, struct cuda_ipc handle, unsigned flags))                                     \
        X(ipc_close, cuIpcCloseMemHandle, 4010, (cuda_address base))                                         \
        X(stream_new, cuStreamCreateWithPriority, 5050,                                                      \
          (cuda_stream * stream, unsigned flags, int priority))                                              \
        X(stream_free, cuStreamDestroy, 4000, (cuda_stream stream))                                          \
        X(stream_query, cuStreamQuery, 2000, (cuda_stream stream))                                           \
        X(stream_wait, cuStreamSynchronize, 2000, (cuda_stream stream))                                      \
        X(stream_capturing, cuStreamIsCapturing, 10000, (cuda_stream stream, unsigned *status))              \
        X(event_new, cuEventCreate, 2000, (cuda_event * event, unsigned flags))                              \
        X(event_free, cuEventDestroy, 4000, (cuda_event event))                                              \
        X(event_record, cuEventRecord, 2000, (cuda_event event, cuda_stream stream))                         \
        X(event_query, cuEventQuery, 2000, (cuda_event event))                                               \
        X(event_wait, cuEventSynchronize, 2000, (cuda_event event))

struct cuda {
        void *library;
        int version; /* of the driver, as cuDriverGetVersion counts */
#define CUDA_MEMBER(member, name, version, arguments) cuda_result(*member) arguments;
        CUDA_CALLS(CUDA_MEMBER)
#undef CUDA_MEMBER
};

/*
 * Loads the driver and initialises it. `path` may be NULL: CUDA_LIBRARY, also from where containers put it.
 * 0, or -ENOENT: there is no such library; -ENOSYS: it lacks functions, which `error` names, or is too old;
 * -ENODEV: it finds no GPU, or does not work. `error` is one sentence without its end. A library that was
 * loaded is never unloaded: the driver leaves threads behind.
 */
int cuda_load(struct cuda *cuda, const char *path, char *error, size_t size);

/* The same for a library that is in this process already, without initialising it; false if it is not
 * there. */
bool cuda_look(struct cuda *cuda, const char *path);

/* "CUDA_ERROR_ILLEGAL_ADDRESS", or "CUDA error 700" if the driver has no name for it. `size` bytes of `text`
 * are used at most; returns `text`. */
const char *cuda_error(const struct cuda *cuda, cuda_result result, char *text, size_t size);

/* "GPU-8e0f…", as nvidia-smi prints it. */
void cuda_uuid_text(const struct cuda_uuid *uuid, char text[CUDA_UUID_TEXT]);

/* The number of the GPU with this UUID (as text), among those that this process sees, and *ret_device; -1:
 * none of them has it. */
int cuda_find_gpu(const struct cuda *cuda, const char *uuid, cuda_device *ret_device);

/* After such an error no call in this process works any more. */
bool cuda_is_sticky(cuda_result result);
