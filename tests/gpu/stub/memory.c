/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stub's memory. Every allocation is a memfd; whoever shares one maps it.
 */
#include "stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { ALLOCATED, MAPPED, OPENED, REGISTERED };

struct range {
        struct range *next;
        enum kind kind;
        char *address;
        size_t size;
        int fd;
        size_t offset;       /* of a small one, in its block; a block is shared as a whole */
        int pid, foreign_fd; /* of OPENED: whose it is */
        unsigned opened;     /* times */
};

struct ipc { /* inside a CUipcMemHandle */
        int pid, fd;
        unsigned uid;
        size_t size, offset;
};

struct handle { /* behind a CUmemGenericAllocationHandle */
        int fd;
        size_t size;
        bool exportable;
};

enum { SMALL = 64 << 10 }; /* allocations up to this size lie side by side in a block of STUB_GRANULARITY */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;

static CUdeviceptr pointer(const void *address) {
        return (CUdeviceptr)(uintptr_t)address;
}

static struct range *find(CUdeviceptr address) {
        struct range *found = NULL;

        pthread_mutex_lock(&lock);
        for (struct range *r = ranges; r != NULL && found == NULL; r = r->next)
                if (address >= pointer(r->address) && address < pointer(r->address) + r->size)
                        found = r;
        pthread_mutex_unlock(&lock);
        return found;
}

static struct range *add(enum kind kind, void *address, size_t size, int fd) {
        struct range *r = calloc(1, sizeof *r);

        if (r == NULL)
                abort();
        *r = (struct range){ .kind = kind, .address = address, .size = size, .fd = fd, .opened = 1 };
        pthread_mutex_lock(&lock);
        r->next = ranges;
        ranges = r;
        pthread_mutex_unlock(&lock);
        return r;
}

static void forget(struct range *gone) {
        pthread_mutex_lock(&lock);
        for (struct range **r = &ranges; *r != NULL; r = &(*r)->next)
                if (*r == gone) {
                        *r = gone->next;
                        break;
                }
        pthread_mutex_unlock(&lock);
        free(gone);
}

static void *map(int fd, size_t size) {
        void *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        return address == MAP_FAILED ? NULL : address;
}

static int new_memfd(size_t size) {
        int fd = memfd_create("stub", MFD_CLOEXEC);

        if (fd >= 0 && ftruncate(fd, (off_t)size) < 0) {
                close(fd);
                fd = -1;
        }
        return fd;
}

int stub_open_foreign(int pid, int fd) {
        char path[64];

        snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
        return open(path, O_RDWR | O_CLOEXEC);
}

bool stub_knows(CUdeviceptr address) {
        return find(address) != NULL;
}

/* A place in the block of small allocations; NULL: it is full. The probe allocates from one thread. */
static struct range *add_small(size_t size) {
        static char *block;
        static size_t used;
        static int fd;
        struct range *r;
        char *memory;

        if (block == NULL) {
                memory = mmap(NULL, 2 * STUB_GRANULARITY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                fd = new_memfd(STUB_GRANULARITY);
                if (memory == MAP_FAILED || fd < 0)
                        return NULL;
                memory += STUB_GRANULARITY - (uintptr_t)memory % STUB_GRANULARITY;
                if (mmap(memory, STUB_GRANULARITY, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
                    MAP_FAILED)
                        return NULL;
                block = memory;
        }
        if (used + SMALL > STUB_GRANULARITY)
                return NULL;
        r = add(ALLOCATED, block + used, size, fd);
        r->offset = used;
        used += SMALL;
        return r;
}

STUB_API CUresult cuMemAlloc(CUdeviceptr *address, size_t size) {
        struct range *small = size <= SMALL ? add_small(size) : NULL;
        void *memory;
        int fd;

        if (!stub_has_context())
                return CUDA_ERROR_INVALID_CONTEXT;
        if (small != NULL) {
                *address = pointer(small->address);
                return CUDA_SUCCESS;
        }
        fd = new_memfd(size);
        memory = fd >= 0 ? map(fd, size) : NULL;
        if (memory == NULL)
                return CUDA_ERROR_OUT_OF_MEMORY;
        add(ALLOCATED, memory, size, fd);
        *address = pointer(memory);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemFree(CUdeviceptr address) {
        struct range *r = find(address);

        if (r == NULL || r->kind != ALLOCATED || address != pointer(r->address))
                return CUDA_ERROR_INVALID_VALUE;
        if (r->size > SMALL) {
                munmap(r->address, r->size);
                close(r->fd);
        }
        forget(r);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
        struct range *r = find(address);

        if (r == NULL)
                return CUDA_ERROR_NOT_FOUND;
        *base = pointer(r->address);
        *size = r->size;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
        struct range *r = find(address);
        struct ipc ipc;

        if (r == NULL || r->kind != ALLOCATED)
                return CUDA_ERROR_INVALID_VALUE;
        ipc = (struct ipc){
                .pid = getpid(), .fd = r->fd, .uid = geteuid(), .size = r->size, .offset = r->offset
        };
        memset(handle, 0, sizeof *handle);
        memcpy(handle, &ipc, sizeof ipc);
        return CUDA_SUCCESS;
}

static struct range *find_opened(const struct ipc *ipc) {
        struct range *found = NULL;

        pthread_mutex_lock(&lock);
        for (struct range *r = ranges; r != NULL; r = r->next)
                if (r->kind == OPENED && r->pid == ipc->pid && r->foreign_fd == ipc->fd &&
                    r->offset == ipc->offset)
                        found = r;
        pthread_mutex_unlock(&lock);
        return found;
}

STUB_API CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
        struct ipc ipc;
        struct range *r;
        void *memory;
        int fd;

        memcpy(&ipc, &handle, sizeof ipc);
        if (ipc.pid == getpid())
                return CUDA_ERROR_INVALID_CONTEXT;
        if (ipc.uid != geteuid() || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
                return CUDA_ERROR_INVALID_VALUE;
        r = find_opened(&ipc);
        if (r == NULL) {
                fd = stub_open_foreign(ipc.pid, ipc.fd);
                memory = fd >= 0 ? map(fd, ipc.size <= SMALL ? STUB_GRANULARITY : ipc.size) : NULL;
                if (memory == NULL)
                        return CUDA_ERROR_INVALID_HANDLE;
                r = add(OPENED, (char *)memory + ipc.offset, ipc.size, fd);
                r->offset = ipc.offset;
                r->pid = ipc.pid;
                r->foreign_fd = ipc.fd;
        } else {
                r->opened++;
        }
        *address = pointer(r->address);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
        struct range *r = find(address);

        if (r == NULL || r->kind != OPENED)
                return CUDA_ERROR_INVALID_VALUE;
        if (--r->opened == 0) {
                munmap(r->address - r->offset, r->size <= SMALL ? STUB_GRANULARITY : r->size);
                close(r->fd);
                forget(r);
        }
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *wanted,
                                                CUmemAllocationGranularity_flags option) {
        *granularity = STUB_GRANULARITY;
        return CUDA_SUCCESS;
}

static CUmemGenericAllocationHandle new_handle(int fd, size_t size, bool exportable) {
        struct handle *h = malloc(sizeof *h);

        if (h == NULL)
                abort();
        *h = (struct handle){ fd, size, exportable };
        return (CUmemGenericAllocationHandle)(uintptr_t)h;
}

static struct handle *open_handle(CUmemGenericAllocationHandle handle) {
        return (struct handle *)(uintptr_t)handle;
}

STUB_API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                              const CUmemAllocationProp *wanted, unsigned long long flags) {
        int fd;

        if (!stub_has_context())
                return CUDA_ERROR_INVALID_CONTEXT;
        if (size == 0 || size % STUB_GRANULARITY != 0 || wanted->type != CU_MEM_ALLOCATION_TYPE_PINNED)
                return CUDA_ERROR_INVALID_VALUE;
        fd = new_memfd(size);
        if (fd < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *handle = new_handle(fd, size,
                             wanted->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type, unsigned long long flags) {
        int fd = fcntl(open_handle(handle)->fd, F_DUPFD_CLOEXEC, 3);

        if (fd < 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !open_handle(handle)->exportable)
                return CUDA_ERROR_INVALID_VALUE;
        *(int *)shareable = fd;
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                                 CUmemAllocationHandleType type) {
        int fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 3);
        struct stat status;

        if (fd < 0 || fstat(fd, &status) < 0 || status.st_size % STUB_GRANULARITY != 0)
                return CUDA_ERROR_INVALID_VALUE;
        *handle = new_handle(fd, (size_t)status.st_size, false);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wish,
                                      unsigned long long flags) {
        void *memory;

        if (size == 0 || size % STUB_GRANULARITY != 0)
                return CUDA_ERROR_INVALID_VALUE;
        memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        *address = pointer(memory);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags) {
        const char *list = getenv("STUB_CUDA");
        struct handle *h = open_handle(handle);
        void *memory;

        if ((size > h->size && (list == NULL || strstr(list, "lax-map") == NULL)) || offset != 0)
                return CUDA_ERROR_INVALID_VALUE;
        memory = mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED, h->fd, 0);
        if (memory == MAP_FAILED)
                return CUDA_ERROR_INVALID_VALUE;
        add(MAPPED, memory, size, -1);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t n) {
        return mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE) == 0
                       ? CUDA_SUCCESS
                       : CUDA_ERROR_INVALID_VALUE;
}

STUB_API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
        struct range *r = find(address);

        if (r == NULL || r->kind != MAPPED || r->size != size)
                return CUDA_ERROR_INVALID_VALUE;
        mmap(r->address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        forget(r);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemHostRegister(void *memory, size_t size, unsigned flags) {
        if (!stub_has_context() || !(flags & CU_MEMHOSTREGISTER_DEVICEMAP))
                return CUDA_ERROR_INVALID_VALUE;
        add(REGISTERED, memory, size, -1);
        return CUDA_SUCCESS;
}

STUB_API CUresult cuMemHostGetDevicePointer(CUdeviceptr *address, void *memory, unsigned flags) {
        struct range *r = find(pointer(memory));

        if (r == NULL || r->kind != REGISTERED)
                return CUDA_ERROR_INVALID_VALUE;
        *address = pointer(memory);
        return CUDA_SUCCESS;
}
