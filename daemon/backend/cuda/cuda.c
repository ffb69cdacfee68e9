/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend for one GPU: the tables of backend.h, over the card (card.c), memory (vmm.c, keeper.c) and
 * launches (issuer.c). It has two threads: one makes memory, one issues work. An error after which the GPU's
 * context is of no use ends the daemon. The next daemon takes the jobs over.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/cuda/card.h"
#include "backend/cuda/issuer.h"
#include "backend/cuda/keeper.h"
#include "base/cleanup.h"
#include "gradsync.pb-c.h"

struct cuda_backend {
        struct backend backend;
        struct backend_config config;
        struct card card;
        struct keeper *keeper;
        struct issuer *issuer;
        int wake; /* eventfd */
        bool failed;
};

static struct cuda_backend *cuda_of(struct backend *backend) {
        return container_of(backend, struct cuda_backend, backend);
}

static struct backend *cuda_close(struct backend *backend) {
        struct cuda_backend *cuda = backend != NULL ? cuda_of(backend) : NULL;

        if (cuda == NULL)
                return NULL;
        cuda->issuer = issuer_free(cuda->issuer);
        cuda->keeper = keeper_free(cuda->keeper);
        card_close(&cuda->card);
        fd_close(cuda->wake);
        free(cuda);
        return NULL;
}

static int cuda_init(struct cuda_backend *cuda, const struct backend_config *config) {
        cuda_result result = CUDA_OK;
        char name[64];
        int r = card_open(&cuda->card, strchr(config->device, ':') + 1, config->driver, config->error,
                          config->error_size);

        if (r < 0)
                return r;
        cuda->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = cuda->wake < 0 ? -errno : keeper_new(&cuda->card, cuda->wake, &cuda->keeper);
        if (r == 0)
                r = issuer_new(&cuda->card, cuda->wake, &cuda->issuer, &result);
        if (r < 0)
                snprintf(config->error, config->error_size, "%s: the GPU cannot be used: %s", config->device,
                         result != CUDA_OK ? cuda_error(&cuda->card.cuda, result, name, sizeof(name))
                                           : strerror(-r));
        return r;
}

static int cuda_open(const struct backend_config *config, struct backend **ret) {
        struct cuda_backend *cuda = calloc(1, sizeof(*cuda));

        if (cuda == NULL)
                return -ENOMEM;
        cuda->backend = (struct backend){ &backend_cuda, backend_cuda.memory, backend_cuda.compute };
        cuda->config = *config;
        cuda->wake = -1;
        int r = cuda_init(cuda, config);
        if (r < 0) {
                cuda_close(&cuda->backend);
                return r;
        }
        *ret = &cuda->backend;
        return 0;
}

static int cuda_fd(struct backend *backend) {
        return cuda_of(backend)->wake;
}

static void cuda_fail(struct cuda_backend *cuda, const char *why) {
        if (cuda->failed)
                return;
        cuda->failed = true;
        if (cuda->config.failed != NULL)
                cuda->config.failed(cuda->config.owner, why);
}

static void cuda_dispatch(struct backend *backend) {
        struct cuda_backend *cuda = cuda_of(backend);
        char error[512], name[64];
        const char *failing;
        eventfd_t ignored;

        eventfd_read(cuda->wake, &ignored);
        cuda_result result =
                keeper_deliver(cuda->keeper, backend, cuda->config.made, cuda->config.owner, &failing);
        if (result != CUDA_OK) {
                snprintf(error, sizeof(error), "the GPU (%s) failed while %s: %s", cuda->card.name, failing,
                         cuda_error(&cuda->card.cuda, result, name, sizeof(name)));
                cuda_fail(cuda, error);
        }
        if (issuer_deliver(cuda->issuer, cuda->config.done, cuda->config.owner, error, sizeof(error)) < 0)
                cuda_fail(cuda, error);
}

static int cuda_request(struct backend *backend, const struct memory_request *request,
                        struct memory_result *ret) {
        *ret = (struct memory_result){ .id = request->id };
        switch (request->kind) {
        case MEMORY_ATTACH: return 1; /* it was charged to the daemon, and mapped, when it was made */
        case MEMORY_OWN:
        case MEMORY_SHARED:
                if (request->bytes == 0 || request->bytes > LIMIT_ARENA) {
                        ret->error = -EINVAL;
                        return 1;
                }
                break;
        case MEMORY_OFFERED:
                if (request->bytes == 0 ||
                    request->offset > LIMIT_ARENA) { /* otherwise their sum does not wrap */
                        ret->error = refuse(&ret->refusal, WIRE__CODE__INVALID,
                                            "%" PRIu64 " bytes from offset %" PRIu64
                                            " are no range of an allocation",
                                            request->bytes, request->offset);
                        return 1;
                }
                /* fall through */
        case MEMORY_RETURNED:
                if (request->n_fds != (request->ipc == NULL ? 1u : 0u)) {
                        ret->error = -EINVAL;
                        return 1;
                }
                break;
        case MEMORY_FREE: break;
        }
        ret->error = keeper_ask(cuda_of(backend)->keeper, request);
        return ret->error < 0;
}

static void cuda_memory_cancel(struct backend *backend, uint64_t id) {
        keeper_cancel(cuda_of(backend)->keeper, id);
}

static void cuda_fds(const struct backend_memory *memory, int fds[MEMORY_FDS]) {
        fds[0] = vmm_of(memory)->fd;
}

static uint64_t cuda_bytes(const struct backend_memory *memory) {
        return vmm_of(memory)->bytes;
}

/* Compares addresses: the driver maps an IPC handle that is open already at the same place. */
static int cuda_compare(const struct backend_memory *a, const struct backend_memory *b) {
        cuda_address x = vmm_of(a)->base, y = vmm_of(b)->base;

        return x < y ? -1 : x > y;
}

static void *cuda_address_of(const struct backend_memory *memory) {
        return (void *)(uintptr_t)vmm_of(memory)->address;
}

static void *cuda_companion(const struct backend_memory *memory) {
        const struct pinned_block *companion = vmm_of(memory)->companion;

        return companion != NULL ? companion->address : NULL;
}

/* Nothing can be withdrawn: the mapping keeps the allocation. */
static int cuda_check(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal) {
        return 0;
}

static size_t cuda_room(const struct backend *backend, const struct backend_task *task) {
        return issuer_room(task);
}

static int cuda_submit(struct backend *backend, const struct backend_task *task, struct backend_result *ret) {
        return issuer_submit(cuda_of(backend)->issuer, task);
}

static void cuda_cancel(struct backend *backend, uint64_t id) {
        issuer_cancel(cuda_of(backend)->issuer, id);
}

static unsigned cuda_ping(struct backend *backend) {
        struct cuda_backend *cuda = cuda_of(backend);

        return (unsigned)keeper_ping(cuda->keeper) + (unsigned)issuer_ping(cuda->issuer);
}

static bool cuda_gpu(const struct backend *backend, struct backend_gpu *ret) {
        const struct cuda_backend *cuda = container_of(backend, struct cuda_backend, backend);

        *ret = (struct backend_gpu){ .uuid = cuda->card.uuid,
                                     .name = cuda->card.name,
                                     .driver = cuda->card.cuda.version,
                                     .mps = cuda->card.mps,
                                     .bytes = cuda->card.bytes,
                                     .granularity = cuda->card.granularity,
                                     .free = keeper_free_bytes(cuda->keeper) };
        return true;
}

static unsigned cuda_workers(const struct backend *backend) {
        return 2;
}

static const char *cuda_simd(const struct backend *backend) {
        return container_of(backend, struct cuda_backend, backend)->card.architecture;
}

static uint64_t cuda_cpu_us(const struct backend *backend) {
        const struct cuda_backend *cuda = container_of(backend, struct cuda_backend, backend);

        return keeper_cpu_us(cuda->keeper) + issuer_cpu_us(cuda->issuer);
}

static const struct memory_ops cuda_memory = {
        .n_fds = 1,
        .request = cuda_request,
        .cancel = cuda_memory_cancel,
        .fds = cuda_fds,
        .bytes = cuda_bytes,
        .compare = cuda_compare,
        .address = cuda_address_of,
        .companion = cuda_companion,
        .check = cuda_check,
};

static const struct compute_ops cuda_compute = {
        .room = cuda_room,
        .submit = cuda_submit,
        .cancel = cuda_cancel,
};

const struct backend_ops backend_cuda = {
        .name = "cuda",
        .memory = &cuda_memory,
        .compute = &cuda_compute,
        .open = cuda_open,
        .close = cuda_close,
        .fd = cuda_fd,
        .dispatch = cuda_dispatch,
        .ping = cuda_ping,
        .gpu = cuda_gpu,
        .workers = cuda_workers,
        .simd = cuda_simd,
        .cpu_us = cuda_cpu_us,
};
