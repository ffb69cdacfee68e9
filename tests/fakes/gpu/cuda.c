/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver library, libcuda.so.1: asks the process's contexts (context.c). It hands functions out by
 * name and version, as cuGetProcAddress_v2() does, and none otherwise.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu.h"

extern char **environ;

#define EXPORT __attribute__((visibility("default")))
#define NOT_INITIALIZED 3

struct CUctx_st {
        unsigned device, retained;
        int socket;
        pid_t process; /* that made it: no context is of use in a forked child */
        pthread_mutex_t lock;
};

struct CUfunc_st {
        uint64_t number;
        unsigned n_parameters;
        size_t bytes[6];
};

struct host {
        void *address;
        size_t bytes;
        cuda_address device;
};

static struct CUctx_st contexts[GPU_DEVICES];
static GPU_THREADS_OWN struct CUctx_st *current;
static bool initialised;
static struct CUfunc_st functions[KERNELS + 1]; /* by their numbers */
static struct host hosts[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- failures that a test asks for ---- */

enum { HANGS = -1, CRASHES = -2, DOES_NOTHING = -3 };

static int begin(const char *name) {
        int failed = machine_failure("FAKE_GPU_FAIL", name);

        while (failed == HANGS)
                pause();
        if (failed == CRASHES)
                abort();
        if (failed != CUDA_OK)
                return failed;
        return strcmp(name, "cuInit") != 0 && !initialised ? NOT_INITIALIZED : CUDA_OK;
}

#define BEGIN(name)                                                                                          \
        do {                                                                                                 \
                int failed = begin(#name);                                                                   \
                if (failed != CUDA_OK)                                                                       \
                        return failed == DOES_NOTHING ? CUDA_OK : failed;                                    \
        } while (0)

/* ---- asking the context ---- */

static int ask_with(struct gpu_request *request, const void *payload, int fd, struct gpu_reply *reply,
                    int *ret_fd) {
        struct iovec asked[] = { { request, sizeof(*request) }, { (void *)payload, request->bytes } };
        struct iovec told = { reply, sizeof(*reply) };
        struct CUctx_st *context = current;
        int r = CUDA_UNKNOWN, with = -1;

        if (context == NULL || context->retained == 0)
                return CUDA_INVALID_CONTEXT;
        if (context->process != getpid())
                return NOT_INITIALIZED;
        pthread_mutex_lock(&context->lock);
        if (packet_send(context->socket, asked, request->bytes > 0 ? 2 : 1, fd) >= 0 &&
            packet_receive(context->socket, &told, 1, &with) == sizeof(*reply))
                r = reply->result;
        pthread_mutex_unlock(&context->lock);
        if (ret_fd != NULL)
                *ret_fd = with;
        return r;
}

static int ask(struct gpu_request *request, uint64_t *value) {
        struct gpu_reply reply;
        int r = ask_with(request, NULL, -1, &reply, NULL);

        if (value != NULL)
                *value = r == CUDA_OK ? reply.value[0] : 0;
        return r;
}

#define TELL(what, ...) ask(&(struct gpu_request){ .call = what, .arg = { __VA_ARGS__ } }, NULL)
/* Stores the answer in `ret`, or zero on an error. The value of the macro is the result. */
#define ASK_FOR(ret, what, ...)                                                                              \
        ({                                                                                                   \
                uint64_t told;                                                                               \
                int result = ask(&(struct gpu_request){ .call = what, .arg = { __VA_ARGS__ } }, &told);      \
                *(ret) = (__typeof__(*(ret)))told;                                                           \
                result;                                                                                      \
        })
#define ASK(reply, what, ...)                                                                                \
        ask_with(&(struct gpu_request){ .call = what, .arg = { __VA_ARGS__ } }, NULL, -1, reply, NULL)

/* A call that the context answers, by its name, its arguments and what the context is asked. */
#define PASS_ON(name, arguments, asked)                                                                      \
        static cuda_result fake_##name arguments {                                                           \
                BEGIN(name);                                                                                 \
                return asked;                                                                                \
        }

/* ---- devices and contexts ---- */

static unsigned devices(void) {
        uint64_t n = machine_setting("FAKE_GPU_DEVICES", 1);

        return n > GPU_DEVICES ? GPU_DEVICES : (unsigned)n;
}

#define BEGIN_ON(name, number)                                                                               \
        do {                                                                                                 \
                BEGIN(name);                                                                                 \
                if ((number) < 0 || (unsigned)(number) >= devices())                                         \
                        return CUDA_INVALID_DEVICE;                                                          \
        } while (0)

static cuda_result fake_cuInit(unsigned flags) {
        int failed = begin("cuInit");

        if (failed != CUDA_OK)
                return failed;
        if (machine_open() == NULL || devices() == 0)
                return CUDA_NO_DEVICE;
        initialised = true;
        return CUDA_OK;
}

static cuda_result fake_cuDriverGetVersion(int *version) {
        *version = (int)machine_setting("FAKE_GPU_DRIVER", 13000);
        return CUDA_OK;
}

static cuda_result fake_cuGetErrorName(cuda_result error, const char **name) {
        static const struct {
                int number;
                const char *name;
        } names[] = {
                { 1, "CUDA_ERROR_INVALID_VALUE" },       { 2, "CUDA_ERROR_OUT_OF_MEMORY" },
                { 3, "CUDA_ERROR_NOT_INITIALIZED" },     { 100, "CUDA_ERROR_NO_DEVICE" },
                { 101, "CUDA_ERROR_INVALID_DEVICE" },    { 201, "CUDA_ERROR_INVALID_CONTEXT" },
                { 214, "CUDA_ERROR_ECC_UNCORRECTABLE" }, { 304, "CUDA_ERROR_OPERATING_SYSTEM" },
                { 400, "CUDA_ERROR_INVALID_HANDLE" },    { 500, "CUDA_ERROR_NOT_FOUND" },
                { 600, "CUDA_ERROR_NOT_READY" },         { 700, "CUDA_ERROR_ILLEGAL_ADDRESS" },
                { 719, "CUDA_ERROR_LAUNCH_FAILED" },     { 801, "CUDA_ERROR_NOT_SUPPORTED" },
                { 999, "CUDA_ERROR_UNKNOWN" },
        };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (names[i].number == error) {
                        *name = names[i].name;
                        return CUDA_OK;
                }
        *name = NULL;
        return CUDA_INVALID_VALUE;
}

static cuda_result fake_cuDeviceGetCount(int *n) {
        BEGIN(cuDeviceGetCount);
        *n = (int)devices();
        return CUDA_OK;
}

static cuda_result fake_cuDeviceGet(cuda_device *device, int ordinal) {
        BEGIN_ON(cuDeviceGet, ordinal);
        *device = ordinal;
        return CUDA_OK;
}

static cuda_result fake_cuDeviceGetName(char *name, int size, cuda_device device) {
        BEGIN_ON(cuDeviceGetName, device);
        const char *own = getenv("FAKE_GPU_NAME");

        snprintf(name, (size_t)size, "%s", own != NULL ? own : "fake GPU");
        return CUDA_OK;
}

static cuda_result fake_cuDeviceGetUuid(struct cuda_uuid *uuid, cuda_device device) {
        BEGIN_ON(cuDeviceGetUuid, device);
        memset(uuid, 0xfa, sizeof(*uuid));
        uuid->bytes[15] = (unsigned char)device;
        return CUDA_OK;
}

static cuda_result fake_cuDeviceGetAttribute(int *value, unsigned attribute, cuda_device device) {
        BEGIN_ON(cuDeviceGetAttribute, device);
        switch (attribute) {
        case CUDA_DEVICE_MULTIPROCESSORS: *value = 132; return CUDA_OK;
        case CUDA_DEVICE_COMPUTE_MODE: *value = 0; return CUDA_OK;
        case CUDA_DEVICE_L2: *value = 1 << 20; return CUDA_OK;
        case CUDA_DEVICE_MAJOR: *value = 9; return CUDA_OK;
        case CUDA_DEVICE_MINOR: *value = 0; return CUDA_OK;
        case CUDA_DEVICE_VMM:
        case CUDA_DEVICE_FD_HANDLES:
        case CUDA_DEVICE_RDMA: *value = 1; return CUDA_OK;
        case CUDA_DEVICE_MPS: *value = getenv("FAKE_GPU_MPS") != NULL; return CUDA_OK;
        default: return CUDA_INVALID_VALUE;
        }
}

static cuda_result fake_cuDeviceTotalMem(size_t *bytes, cuda_device device) {
        BEGIN_ON(cuDeviceTotalMem, device);
        *bytes = machine_setting("FAKE_GPU_BYTES", UINT64_C(1) << 30);
        return CUDA_OK;
}

/* The context process is beside this library. */
static int spawn(struct CUctx_st *context) {
        char path[PATH_MAX], numbers[3][16];
        char *arguments[] = { path, numbers[0], numbers[1], numbers[2], NULL };
        posix_spawn_file_actions_t actions;
        int pair[2], status;
        Dl_info info;
        pid_t pid;

        if (dladdr((void *)(uintptr_t)spawn, &info) == 0 ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return CUDA_UNKNOWN;
        snprintf(path, sizeof(path), "%.*s/fake-gpu-context",
                 (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
        snprintf(numbers[0], sizeof(numbers[0]), "%d", 3);
        snprintf(numbers[1], sizeof(numbers[1]), "%d", getpid());
        snprintf(numbers[2], sizeof(numbers[2]), "%u", context->device);
        posix_spawn_file_actions_init(&actions);
        int from = fcntl(pair[1], F_DUPFD_CLOEXEC, 64); /* a copy onto the same number would keep the flag */
        posix_spawn_file_actions_adddup2(&actions, from, 3);
        int r = posix_spawn(&pid, path, &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(from);
        close(pair[1]);
        if (r == 0)
                while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                        ;
        context->socket = pair[0];
        return r == 0 ? CUDA_OK : CUDA_UNKNOWN;
}

static cuda_result fake_cuDevicePrimaryCtxRetain(cuda_context *ret, cuda_device device) {
        int r = CUDA_OK;

        BEGIN_ON(cuDevicePrimaryCtxRetain, device);
        struct CUctx_st *context = &contexts[device];
        pthread_mutex_lock(&lock);
        if (context->retained == 0) {
                context->device = (unsigned)device;
                context->process = getpid();
                pthread_mutex_init(&context->lock, NULL);
                r = spawn(context);
        }
        context->retained += r == CUDA_OK;
        pthread_mutex_unlock(&lock);
        *ret = context;
        return r;
}

static cuda_result fake_cuDevicePrimaryCtxRelease(cuda_device device) {
        BEGIN_ON(cuDevicePrimaryCtxRelease, device);
        struct CUctx_st *context = &contexts[device], *before = current;
        int r = CUDA_OK;

        pthread_mutex_lock(&lock);
        if (context->retained == 0) {
                r = CUDA_INVALID_CONTEXT;
        } else if (context->retained > 1) {
                context->retained--;
        } else {
                current = context;
                TELL(GPU_CLOSE, 0);
                current = before;
                context->retained = 0;
                close(context->socket);
        }
        pthread_mutex_unlock(&lock);
        return r;
}

static cuda_result fake_cuDevicePrimaryCtxGetState(cuda_device device, unsigned *flags, int *active) {
        BEGIN_ON(cuDevicePrimaryCtxGetState, device);
        pthread_mutex_lock(&lock);
        *flags = 0;
        *active = contexts[device].retained > 0;
        pthread_mutex_unlock(&lock);
        return CUDA_OK;
}

static cuda_result fake_cuDevicePrimaryCtxSetFlags(cuda_device device, unsigned flags) {
        BEGIN_ON(cuDevicePrimaryCtxSetFlags, device);
        return CUDA_OK;
}

static cuda_result fake_cuCtxSetCurrent(cuda_context context) {
        BEGIN(cuCtxSetCurrent);
        current = context;
        return CUDA_OK;
}

static cuda_result fake_cuCtxGetCurrent(cuda_context *context) {
        BEGIN(cuCtxGetCurrent);
        *context = current;
        return CUDA_OK;
}

static cuda_result fake_cuCtxGetDevice(cuda_device *device) {
        BEGIN(cuCtxGetDevice);
        if (current == NULL)
                return CUDA_INVALID_CONTEXT;
        *device = (int)current->device;
        return CUDA_OK;
}

/* ---- kernels ---- */

/* Tries to write machine code and to run it, as a driver does. */
static bool may_write_code(void) {
        void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        bool may = memory != MAP_FAILED && mprotect(memory, 4096, PROT_READ | PROT_EXEC) == 0;

        munmap(memory, 4096);
        return may;
}

static cuda_result fake_cuModuleLoadData(cuda_module *module, const void *image) {
        static const unsigned char fatbin[] = { 0x50, 0xed, 0x55, 0xba };

        BEGIN(cuModuleLoadData);
        if (current == NULL)
                return CUDA_INVALID_CONTEXT;
        if (memcmp(image, fatbin, sizeof(fatbin)) != 0 && strstr(image, ".version") == NULL)
                return 200; /* CUDA_ERROR_INVALID_IMAGE */
        if (getenv("FAKE_GPU_WRITES_CODE") != NULL && !may_write_code())
                return 304; /* CUDA_ERROR_OPERATING_SYSTEM */
        *module = (cuda_module)functions;
        return CUDA_OK;
}

static cuda_result fake_cuModuleGetFunction(cuda_function *ret, cuda_module module, const char *name) {
        struct gpu_request request = { .call = GPU_FUNCTION, .bytes = (uint32_t)strlen(name) + 1 };
        struct gpu_reply reply;

        BEGIN(cuModuleGetFunction);
        int r = ask_with(&request, name, -1, &reply, NULL);
        if (r != CUDA_OK)
                return r;
        struct CUfunc_st *function = &functions[reply.value[0]];
        pthread_mutex_lock(&lock);
        function->number = reply.value[0];
        function->n_parameters = (unsigned)reply.value[1];
        for (unsigned i = 0; i < 6; i++)
                function->bytes[i] = reply.value[2 + i];
        pthread_mutex_unlock(&lock);
        *ret = function;
        return CUDA_OK;
}

static uint64_t number_of(const void *handle) {
        return (uint64_t)(uintptr_t)handle;
}

static cuda_result fake_cuLaunchKernel(cuda_function function, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                       unsigned shared_bytes, cuda_stream stream, void **parameters,
                                       void **extra) {
        const unsigned shape[] = { grid_x, grid_y, grid_z, block_x, block_y, block_z };
        struct gpu_request request = { .call = GPU_LAUNCH };
        unsigned char payload[GPU_PAYLOAD];
        struct gpu_reply reply;

        BEGIN(cuLaunchKernel);
        if (grid_x == 0 || block_x == 0 || block_x > 1024)
                return CUDA_INVALID_VALUE;
        for (unsigned i = 0; i < function->n_parameters; i++) {
                size_t padded = (function->bytes[i] + 7) / 8 * 8;
                if (request.bytes + padded > sizeof(payload))
                        return CUDA_INVALID_VALUE;
                memset(payload + request.bytes, 0, padded);
                memcpy(payload + request.bytes, parameters[i], function->bytes[i]);
                request.bytes += (uint32_t)padded;
        }
        request.arg[0] = function->number;
        memcpy(request.arg + 1, shape, sizeof(shape));
        request.arg[4] = number_of(stream);
        return ask_with(&request, payload, -1, &reply, NULL);
}

/* ---- memory ---- */

static cuda_result fake_cuMemGetInfo(size_t *free_bytes, size_t *total) {
        struct gpu_reply reply;

        BEGIN(cuMemGetInfo);
        int r = ASK(&reply, GPU_MEMORY_INFO, 0);
        *free_bytes = r == CUDA_OK ? reply.value[0] : 0;
        *total = r == CUDA_OK ? reply.value[1] : 0;
        return r;
}

static cuda_result fake_cuMemGetAllocationGranularity(size_t *bytes, const struct cuda_properties *properties,
                                                      unsigned option) {
        BEGIN(cuMemGetAllocationGranularity);
        *bytes = GPU_GRANULARITY;
        return CUDA_OK;
}

static cuda_result fake_cuMemCreate(cuda_handle *handle, size_t bytes,
                                    const struct cuda_properties *properties, unsigned long long flags) {
        BEGIN(cuMemCreate);
        if (properties->type != CUDA_ALLOCATION_PINNED || properties->location.type != CUDA_LOCATION_DEVICE ||
            current == NULL || properties->location.id != (int)current->device)
                return CUDA_INVALID_VALUE;
        return ASK_FOR(handle, GPU_CREATE, bytes);
}

PASS_ON(cuMemRelease, (cuda_handle handle), TELL(GPU_RELEASE, handle))

PASS_ON(cuMemAddressReserve,
        (cuda_address * address, size_t bytes, size_t alignment, cuda_address wanted,
         unsigned long long flags),
        ASK_FOR(address, GPU_RESERVE, bytes))

PASS_ON(cuMemAddressFree, (cuda_address address, size_t bytes), TELL(GPU_UNRESERVE, address, bytes))

static cuda_result fake_cuMemMap(cuda_address address, size_t bytes, size_t offset, cuda_handle handle,
                                 unsigned long long flags) {
        BEGIN(cuMemMap);
        return offset != 0 ? CUDA_INVALID_VALUE : TELL(GPU_MAP, address, bytes, handle);
}

PASS_ON(cuMemUnmap, (cuda_address address, size_t bytes), TELL(GPU_UNMAP, address, bytes))

static cuda_result fake_cuMemSetAccess(cuda_address address, size_t bytes, const struct cuda_access *access,
                                       size_t n) {
        BEGIN(cuMemSetAccess);
        if (n != 1 || access->flags != CUDA_ACCESS_READ_WRITE)
                return CUDA_INVALID_VALUE;
        return TELL(GPU_ACCESS, address, bytes, (uint64_t)access->location.id);
}

static cuda_result fake_cuMemExportToShareableHandle(void *shareable, cuda_handle handle, unsigned type,
                                                     unsigned long long flags) {
        struct gpu_request request = { .call = GPU_EXPORT, .arg = { handle } };
        struct gpu_reply reply;
        int fd = -1;

        BEGIN(cuMemExportToShareableHandle);
        if (type != CUDA_HANDLE_FD)
                return CUDA_NOT_SUPPORTED;
        int r = ask_with(&request, NULL, -1, &reply, &fd);
        *(int *)shareable = fd;
        return r;
}

static cuda_result fake_cuMemImportFromShareableHandle(cuda_handle *handle, void *shareable, unsigned type) {
        struct gpu_request request = { .call = GPU_IMPORT };
        struct gpu_reply reply;

        BEGIN(cuMemImportFromShareableHandle);
        int r = type != CUDA_HANDLE_FD ? CUDA_NOT_SUPPORTED
                                       : ask_with(&request, NULL, (int)(intptr_t)shareable, &reply, NULL);
        *handle = r == CUDA_OK ? reply.value[0] : 0;
        return r;
}

static cuda_result fake_cuMemGetAllocationPropertiesFromHandle(struct cuda_properties *properties,
                                                               cuda_handle handle) {
        int on;

        BEGIN(cuMemGetAllocationPropertiesFromHandle);
        int r = ASK_FOR(&on, GPU_PROPERTIES, handle);
        if (r == CUDA_OK)
                *properties = (struct cuda_properties){
                        .type = CUDA_ALLOCATION_PINNED,
                        .handle_types = CUDA_HANDLE_FD,
                        .location = { CUDA_LOCATION_DEVICE, on },
                };
        return r;
}

PASS_ON(cuMemRetainAllocationHandle, (cuda_handle * handle, void *address),
        ASK_FOR(handle, GPU_RETAIN, number_of(address)))

PASS_ON(cuMemAlloc, (cuda_address * address, size_t bytes),
        ASK_FOR(address, GPU_ALLOCATE, bytes, ALLOCATED_PLAIN))

/* Trainers may have such memory; the product never makes any. */
PASS_ON(cuMemAllocManaged, (cuda_address * address, size_t bytes, unsigned flags),
        ASK_FOR(address, GPU_ALLOCATE, bytes, ALLOCATED_MANAGED))

/* Freeing waits for all work of the context. */
static cuda_result fake_cuCtxSynchronize(void) {
        cuda_address address;

        BEGIN(cuCtxSynchronize);
        int r = ASK_FOR(&address, GPU_ALLOCATE, 1, ALLOCATED_PLAIN);
        return r == CUDA_OK ? TELL(GPU_FREE, address) : r;
}

PASS_ON(cuMemAllocAsync, (cuda_address * address, size_t bytes, cuda_stream stream),
        ASK_FOR(address, GPU_ALLOCATE, bytes, ALLOCATED_POOL))

PASS_ON(cuMemFree, (cuda_address address), TELL(GPU_FREE, address))

static cuda_result fake_cuMemGetAddressRange(cuda_address *base, size_t *bytes, cuda_address address) {
        cuda_address ignored;

        BEGIN(cuMemGetAddressRange);
        int r = ASK_FOR(base != NULL ? base : &ignored, GPU_ATTRIBUTE, CUDA_POINTER_RANGE_START, address);
        return r != CUDA_OK || bytes == NULL
                       ? r
                       : ASK_FOR(bytes, GPU_ATTRIBUTE, CUDA_POINTER_RANGE_SIZE, address);
}

/* Addresses are those of the whole process: whichever context has it answers. */
static int ask_anywhere(unsigned long long *ret, unsigned attribute, cuda_address address) {
        struct CUctx_st *before = current;
        int r = ASK_FOR(ret, GPU_ATTRIBUTE, attribute, address);

        for (unsigned i = 0; i < GPU_DEVICES && r == CUDA_INVALID_VALUE; i++)
                if (&contexts[i] != before && contexts[i].retained > 0) {
                        current = &contexts[i];
                        r = ASK_FOR(ret, GPU_ATTRIBUTE, attribute, address);
                }
        current = before;
        return r;
}

static cuda_result fake_cuPointerGetAttribute(void *value, unsigned attribute, cuda_address address) {
        unsigned long long found;

        BEGIN(cuPointerGetAttribute);
        int r = ask_anywhere(&found, attribute, address);
        if (r != CUDA_OK)
                return r;
        switch (attribute) {
        case CUDA_POINTER_MEMORY_TYPE:
        case CUDA_POINTER_DEVICE_ORDINAL:
        case CUDA_POINTER_IS_MANAGED: *(unsigned *)value = (unsigned)found; break;
        case CUDA_POINTER_LEGACY_IPC: *(bool *)value = found != 0; break;
        default: *(unsigned long long *)value = found;
        }
        return CUDA_OK;
}

/* ---- host memory ---- */

static struct host *host_find(const void *address) {
        for (unsigned i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++)
                if (hosts[i].address == address)
                        return &hosts[i];
        return NULL;
}

/* Memory that is a map of the whole file. */
static int host_add(void *map, size_t bytes, int fd) {
        struct gpu_request request = { .call = GPU_HOST, .arg = { bytes } };
        struct gpu_reply reply;
        int r = ask_with(&request, NULL, fd, &reply, NULL);

        if (r != CUDA_OK)
                return r;
        pthread_mutex_lock(&lock);
        struct host *host = host_find(NULL);
        if (host == NULL)
                abort();
        *host = (struct host){ map, bytes, reply.value[0] };
        pthread_mutex_unlock(&lock);
        return CUDA_OK;
}

static cuda_result fake_cuMemHostAlloc(void **ret, size_t bytes, unsigned flags) {
        size_t whole = (bytes + 4095) / 4096 * 4096;

        BEGIN(cuMemHostAlloc);
        int fd = memfd_create("fake-gpu-host", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)whole) < 0)
                return CUDA_OUT_OF_MEMORY;
        void *map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        int r = map == MAP_FAILED ? CUDA_OUT_OF_MEMORY : host_add(map, whole, fd);
        close(fd);
        *ret = r == CUDA_OK ? map : NULL;
        return r;
}

/* The number of the file that is mapped there; 0: none. */
static unsigned long long file_at(const void *address) {
        FILE *maps = fopen("/proc/self/maps", "re");
        unsigned long long from, inode = 0;
        char line[PATH_MAX];

        while (maps != NULL && inode == 0 && fgets(line, sizeof(line), maps) != NULL)
                if (sscanf(line, "%llx-%*x %*s %*x %*s %llu", &from, &inode) != 2 ||
                    from != (uintptr_t)address)
                        inode = 0;
        if (maps != NULL)
                fclose(maps);
        return inode;
}

/* Only memory of a file of which this process has a descriptor: another process has to map it, too. */
static cuda_result fake_cuMemHostRegister(void *address, size_t bytes, unsigned flags) {
        struct stat status;

        BEGIN(cuMemHostRegister);
        unsigned long long file = file_at(address);
        for (int fd = 0; file != 0 && fd < 1024; fd++)
                if (fstat(fd, &status) == 0 && status.st_ino == file && (size_t)status.st_size == bytes)
                        return host_add(address, bytes, fd);
        return CUDA_INVALID_VALUE;
}

static cuda_result fake_cuMemFreeHost(void *address) {
        BEGIN(cuMemFreeHost);
        pthread_mutex_lock(&lock);
        struct host *host = host_find(address);
        struct host old = host != NULL ? *host : (struct host){ 0 };
        if (host != NULL)
                *host = (struct host){ 0 };
        pthread_mutex_unlock(&lock);
        if (old.address == NULL)
                return CUDA_INVALID_VALUE;
        munmap(old.address, old.bytes);
        return TELL(GPU_HOST_FREE, old.device);
}

static cuda_result fake_cuMemHostGetDevicePointer(cuda_address *address, void *host, unsigned flags) {
        BEGIN(cuMemHostGetDevicePointer);
        pthread_mutex_lock(&lock);
        const struct host *found = host_find(host);
        *address = found != NULL ? found->device : 0;
        pthread_mutex_unlock(&lock);
        return found != NULL ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* ---- copies ---- */

PASS_ON(cuMemsetD8Async, (cuda_address address, unsigned char value, size_t bytes, cuda_stream stream),
        TELL(GPU_SET, address, bytes, value, number_of(stream), 1))

PASS_ON(cuMemsetD32Async, (cuda_address address, unsigned value, size_t words, cuda_stream stream),
        TELL(GPU_SET, address, 4 * words, value, number_of(stream), 4))

/* Where the GPU sees that pinned memory; 0: it is not pinned. */
static cuda_address pinned_at(const void *address, size_t bytes) {
        uintptr_t at = (uintptr_t)address;
        cuda_address found = 0;

        pthread_mutex_lock(&lock);
        for (unsigned i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
                uintptr_t begin = (uintptr_t)hosts[i].address;
                if (begin != 0 && at >= begin && at + bytes <= begin + hosts[i].bytes)
                        found = hosts[i].device + (at - begin);
        }
        pthread_mutex_unlock(&lock);
        return found;
}

static int copy_host(cuda_address address, int fd, size_t bytes, bool out, cuda_stream stream) {
        struct gpu_request request = { .call = GPU_COPY_HOST,
                                       .arg = { address, bytes, out, number_of(stream) } };
        struct gpu_reply reply;

        return ask_with(&request, NULL, fd, &reply, NULL);
}

/* Memory that is not pinned is staged before the call returns. */
static cuda_result fake_cuMemcpyHtoDAsync(cuda_address to, const void *from, size_t bytes,
                                          cuda_stream stream) {
        BEGIN(cuMemcpyHtoDAsync);
        cuda_address pinned = pinned_at(from, bytes);
        if (pinned != 0)
                return TELL(GPU_COPY, to, pinned, bytes, number_of(stream));
        int fd = memfd_create("fake-gpu-copy", MFD_CLOEXEC);
        int r = fd >= 0 && pwrite(fd, from, bytes, 0) == (ssize_t)bytes
                        ? copy_host(to, fd, bytes, false, stream)
                        : CUDA_OUT_OF_MEMORY;
        close(fd);
        return r;
}

static int wait_for(enum gpu_call call, uint64_t number) {
        int r;

        while ((r = TELL(call, number)) == CUDA_NOT_READY)
                usleep(50);
        return r;
}

/* A copy to memory that is not pinned is done when the call returns. */
static cuda_result fake_cuMemcpyDtoHAsync(void *to, cuda_address from, size_t bytes, cuda_stream stream) {
        BEGIN(cuMemcpyDtoHAsync);
        cuda_address pinned = pinned_at(to, bytes);
        if (pinned != 0)
                return TELL(GPU_COPY, pinned, from, bytes, number_of(stream));
        int fd = memfd_create("fake-gpu-copy", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
                return CUDA_OUT_OF_MEMORY;
        int r = copy_host(from, fd, bytes, true, stream);
        if (r == CUDA_OK)
                r = wait_for(GPU_STREAM_QUERY, number_of(stream));
        if (r == CUDA_OK && pread(fd, to, bytes, 0) != (ssize_t)bytes)
                r = CUDA_UNKNOWN;
        close(fd);
        return r;
}

PASS_ON(cuMemcpyDtoDAsync, (cuda_address to, cuda_address from, size_t bytes, cuda_stream stream),
        TELL(GPU_COPY, to, from, bytes, number_of(stream)))

/* ---- legacy IPC ---- */

_Static_assert(sizeof(struct gpu_ipc) <= sizeof(struct cuda_ipc), "a handle fits");
_Static_assert(sizeof(struct gpu_ipc) <= sizeof(((struct gpu_reply *)0)->value), "and an answer");

static cuda_result fake_cuIpcGetMemHandle(struct cuda_ipc *handle, cuda_address base) {
        struct gpu_reply reply;

        BEGIN(cuIpcGetMemHandle);
        int r = ASK(&reply, GPU_IPC_GET, base);
        memset(handle, 0, sizeof(*handle));
        if (r == CUDA_OK)
                memcpy(handle, reply.value, sizeof(struct gpu_ipc));
        return r;
}

static cuda_result fake_cuIpcOpenMemHandle(cuda_address *base, struct cuda_ipc handle, unsigned flags) {
        struct gpu_request request = { .call = GPU_IPC_OPEN, .bytes = sizeof(struct gpu_ipc) };
        struct gpu_reply reply;

        BEGIN(cuIpcOpenMemHandle);
        int r = flags != CUDA_IPC_LAZY_PEER_ACCESS ? CUDA_INVALID_VALUE
                                                   : ask_with(&request, &handle, -1, &reply, NULL);
        *base = r == CUDA_OK ? reply.value[0] : 0;
        return r;
}

PASS_ON(cuIpcCloseMemHandle, (cuda_address base), TELL(GPU_IPC_CLOSE, base))

/* ---- streams and events ---- */

static uint64_t capturing; /* stream, plus 1 */

PASS_ON(cuStreamCreateWithPriority, (cuda_stream * stream, unsigned flags, int priority),
        ASK_FOR(stream, GPU_STREAM_NEW, 0))

PASS_ON(cuStreamDestroy, (cuda_stream stream), TELL(GPU_STREAM_FREE, number_of(stream)))

PASS_ON(cuStreamQuery, (cuda_stream stream), TELL(GPU_STREAM_QUERY, number_of(stream)))

PASS_ON(cuStreamSynchronize, (cuda_stream stream), wait_for(GPU_STREAM_QUERY, number_of(stream)))

static cuda_result fake_cuStreamIsCapturing(cuda_stream stream, unsigned *status) {
        BEGIN(cuStreamIsCapturing);
        *status = capturing == number_of(stream) + 1;
        return CUDA_OK;
}

/* For tests: whether the stream is in the middle of a capture. */
EXPORT void fake_gpu_capture(cuda_stream stream, bool on);
EXPORT void fake_gpu_capture(cuda_stream stream, bool on) {
        capturing = on ? number_of(stream) + 1 : 0;
}

PASS_ON(cuEventCreate, (cuda_event * event, unsigned flags), ASK_FOR(event, GPU_EVENT_NEW, 0))

PASS_ON(cuEventDestroy, (cuda_event event), TELL(GPU_EVENT_FREE, number_of(event)))

PASS_ON(cuEventRecord, (cuda_event event, cuda_stream stream),
        TELL(GPU_EVENT_RECORD, number_of(event), number_of(stream)))

PASS_ON(cuEventQuery, (cuda_event event), TELL(GPU_EVENT_QUERY, number_of(event)))

PASS_ON(cuEventSynchronize, (cuda_event event), wait_for(GPU_EVENT_QUERY, number_of(event)))

static cuda_result fake_cuStreamWaitValue64(cuda_stream stream, cuda_address address, uint64_t value,
                                            unsigned flags) {
        BEGIN(cuStreamWaitValue64);
        /* 0: until the word is at least that */
        return flags != 0 ? CUDA_NOT_SUPPORTED : TELL(GPU_WAIT_VALUE, address, value, 0, number_of(stream));
}

PASS_ON(cuStreamWriteValue64, (cuda_stream stream, cuda_address address, uint64_t value, unsigned flags),
        TELL(GPU_WRITE_VALUE, address, value, 0, number_of(stream)))

/* For the fake NCCL: an operation of the stream, of the communicator whose file it is. */
EXPORT cuda_result fake_gpu_collective(cuda_stream stream, const struct gpu_collective *collective,
                                       int board);
EXPORT cuda_result fake_gpu_collective(cuda_stream stream, const struct gpu_collective *collective,
                                       int board) {
        struct gpu_request request = { .call = GPU_COLLECTIVE,
                                       .bytes = sizeof(*collective),
                                       .arg = { [3] = number_of(stream) } };
        struct gpu_reply reply;

        return ask_with(&request, collective, board, &reply, NULL);
}

/* ---- the table ---- */

EXPORT cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                       unsigned *found);

static bool lacks(const char *name) {
        const char *list = getenv("FAKE_GPU_LACKS");
        size_t length = strlen(name);

        for (; list != NULL; list = strchr(list, ',') != NULL ? strchr(list, ',') + 1 : NULL)
                if (strncmp(list, name, length) == 0 && (list[length] == ',' || list[length] == '\0'))
                        return true;
        return false;
}

EXPORT cuda_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                       unsigned *found) {
        static const struct {
                const char *name;
                int version;
                void *function;
        } table[] = {
#define OTHER(call, since) { #call, since, (void *)(uintptr_t)fake_##call }
#define ROW(member, call, since, arguments) OTHER(call, since),
                CUDA_CALLS(ROW)
                /* Calls that the product does not make, but trainers and the probe do. */
                OTHER(cuCtxSynchronize, 2000),
                OTHER(cuMemAllocManaged, 6000),
                OTHER(cuMemAllocAsync, 11020),
                OTHER(cuMemHostRegister, 6050),
                OTHER(cuMemsetD32Async, 3020),
                OTHER(cuStreamWaitValue64, 11070),
                OTHER(cuStreamWriteValue64, 11070),
        };

        *function = NULL;
        *found = 1; /* no such symbol */
        for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                if (strcmp(table[i].name, name) == 0 && table[i].version == version && !lacks(name)) {
                        *function = table[i].function;
                        *found = 0;
                        return CUDA_OK;
                }
        return CUDA_NOT_FOUND;
}

/* A function of another signature than the product's is an error here. */
#define SAME(member, call, since, arguments)                                                                 \
        _Static_assert(__builtin_types_compatible_p(__typeof__(fake_##call), cuda_result arguments), #call);
CUDA_CALLS(SAME)
