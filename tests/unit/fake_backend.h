/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend for tests of the job and session layers: it reduces nothing, keeps each submitted task until the
 * test lets it end, and, if it is told to be late, each request for memory. It enforces the contract: one
 * request at a time for a memory, none while a task uses it, nothing of a memory is used once it is given
 * back, no id twice, results only for known tasks, a room for one task at a time.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/cleanup.h"
#include "base/user.h"
#include "job/job.h"
#include "proto/memfd.h"

#define FAKE_ROOM 40u /* bytes for each input */

/* The limits of each user in these tests. */
static const uint64_t fake_limits[ACCOUNT_SLOTS] = {
        [ACCOUNT_CLIENTS] = 10,
        [ACCOUNT_JOBS] = 4,
        [ACCOUNT_ARENAS] = 8,
        [ACCOUNT_BYTES] = UINT64_C(1) << 30,
        [ACCOUNT_FDS] = 100,
        [ACCOUNT_OWN] = UINT64_C(1) << 30,
        [ACCOUNT_PLANS] = UINT64_C(64) << 20,
};

struct fake_memory {
        struct backend_memory memory;
        struct fake_memory *next; /* of all that there have been */
        int fd;
        dev_t device;
        ino_t inode;
        uint64_t bytes;
        unsigned tasks, requests;
        bool attached, freed;
};

struct fake_request { /* a late one */
        struct memory_request request;
        int fd; /* taken over; else -1 */
        bool cancelled;
};

struct fake_task {
        struct backend_task task;
        struct backend_range input[LIMIT_LOCAL], output[LIMIT_LOCAL];
        bool cancelled;
        unsigned withdrawn; /* number of the input of which some is missing, plus 1; set by the test */
};

struct fake_backend {
        struct backend backend;
        backend_done_fn done;
        backend_made_fn made;
        void *owner;
        struct fake_memory *memories;
        bool is_gpu;
        bool late; /* requests are kept until the test lets them end */
        struct fake_request request[64];
        unsigned n_requests;
        struct fake_task task[64];
        unsigned n_tasks, n_arenas, submitted;
        bool inline_results, refuse_attach;
        const struct backend_memory *withdrawn; /* what check() finds a hole in */
        int arena_error;                        /* what new() fails with */
        int submit_error;                       /* and submit() */
        size_t room;                            /* what room() says; 0: FAKE_ROOM */
        uint64_t counts[LIMIT_LOCAL];
        uint64_t found; /* by a task that looks for something */
};

static struct fake_backend *fake_of(const struct backend_memory *memory) {
        return container_of(memory->backend, struct fake_backend, backend);
}

static struct fake_memory *fake_memory_of(const struct backend_memory *memory) {
        return container_of(memory, struct fake_memory, memory);
}

/* Checks that no caller uses memory that was given back. */
static struct fake_memory *fake_live(const struct backend_memory *memory) {
        assert(!fake_memory_of(memory)->freed);
        return fake_memory_of(memory);
}

static struct backend_memory *fake_memory_new(struct fake_backend *fake, int fd, uint64_t bytes,
                                              bool attached) {
        struct fake_memory *memory = calloc(1, sizeof(*memory));
        struct stat info;

        assert(fstat(fd, &info) == 0);
        *memory = (struct fake_memory){ .memory.backend = &fake->backend,
                                        .next = fake->memories,
                                        .fd = fd,
                                        .device = info.st_dev,
                                        .inode = info.st_ino,
                                        .bytes = bytes,
                                        .attached = attached };
        fake->memories = memory;
        fake->n_arenas++;
        return &memory->memory;
}

static int fake_make(struct fake_backend *fake, const struct memory_request *request, int fd,
                     struct memory_result *ret) {
        bool made = request->kind == MEMORY_SHARED || request->kind == MEMORY_OWN;

        if (made && fake->arena_error < 0)
                return fake->arena_error;
        if (made) {
                fd = memfd_create("fake", MFD_CLOEXEC);
                assert(fd >= 0 && ftruncate(fd, (off_t)request->bytes) == 0);
        }
        ret->memory = fake_memory_new(fake, fd, request->bytes, request->kind != MEMORY_SHARED);
        return 0;
}

static int fake_attach(struct fake_backend *fake, struct fake_memory *memory, struct memory_result *ret) {
        assert(!memory->attached);
        if (fake->refuse_attach)
                return refuse(&ret->refusal, 20, "not touched");
        memory->attached = true;
        return 0;
}

static int fake_let_go(struct fake_backend *fake, struct fake_memory *memory) {
        memory->freed = true;
        close(memory->fd);
        fake->n_arenas--;
        return 0;
}

/* Answers a request. `error`: the failure that the test asks for, or 0. */
static void fake_answer(struct fake_backend *fake, const struct memory_request *request, int fd, int error,
                        struct memory_result *ret) {
        struct fake_memory *memory = request->memory != NULL ? fake_live(request->memory) : NULL;

        *ret = (struct memory_result){ .id = request->id };
        if (memory != NULL)
                memory->requests--;
        if (request->kind == MEMORY_FREE)
                fake_let_go(fake, memory);
        else if (error == 0)
                error = memory != NULL ? fake_attach(fake, memory, ret) : fake_make(fake, request, fd, ret);
        else if (error > 0)
                refuse(&ret->refusal, (uint32_t)error, "the device says no");
        if (error != 0 && fd >= 0)
                close(fd);
        ret->error = error;
}

/* Takes the descriptor of a request. One of a member's is checked before. */
static int fake_take_fd(const struct memory_request *request, int *ret, struct memory_result *result) {
        struct memfd_file file;
        char text[256];
        int r;

        *ret = -1;
        if (request->kind != MEMORY_OFFERED && request->kind != MEMORY_RETURNED)
                return 0;
        assert(request->n_fds == 1);
        r = memfd_check(request->fds[0], request->offset, request->bytes, &file, text, sizeof(text));
        if (r > 0)
                return refuse(&result->refusal, (uint32_t)r, "%s", text);
        if (r == 0) {
                *ret = request->fds[0];
                request->fds[0] = -1;
        }
        return r;
}

static int fake_request(struct backend *backend, const struct memory_request *request,
                        struct memory_result *ret) {
        struct fake_backend *fake = container_of(backend, struct fake_backend, backend);
        int fd, r = fake_take_fd(request, &fd, ret);

        if (request->memory != NULL) {
                assert(request->kind == MEMORY_ATTACH || request->kind == MEMORY_FREE);
                assert(request->memory->backend == backend);
                assert(fake_live(request->memory)->tasks == 0); /* the daemon's last access has ended */
                assert(fake_live(request->memory)->requests++ == 0);
        }
        for (unsigned i = 0; i < fake->n_requests; i++)
                assert(fake->request[i].request.id != request->id);
        if (fake->late && r == 0 && request->kind != MEMORY_OWN) {
                assert(fake->n_requests < 64);
                fake->request[fake->n_requests++] = (struct fake_request){ .request = *request, .fd = fd };
                return 0;
        }
        if (r == 0) {
                fake_answer(fake, request, fd, 0, ret);
                return 1;
        }
        ret->id = request->id;
        ret->error = r;
        ret->memory = NULL;
        return 1;
}

static void fake_memory_cancel(struct backend *backend, uint64_t id) {
        struct fake_backend *fake = container_of(backend, struct fake_backend, backend);

        for (unsigned i = 0; i < fake->n_requests; i++)
                if (fake->request[i].request.id == id) {
                        assert(fake->request[i].request.kind != MEMORY_FREE);
                        assert(!fake->request[i].cancelled);
                        fake->request[i].cancelled = true;
                }
}

/* Lets a late request end; one that has been called off may have been done already. */
static inline void fake_end_request(struct fake_backend *fake, unsigned index, int error) {
        struct fake_request ended = fake->request[index];
        struct memory_result result;

        assert(index < fake->n_requests);
        memmove(&fake->request[index], &fake->request[index + 1],
                (--fake->n_requests - index) * sizeof(ended));
        fake_answer(fake, &ended.request, ended.fd, error, &result);
        fake->made(fake->owner, &result);
}

static void fake_memory_fds(const struct backend_memory *memory, int fds[MEMORY_FDS]) {
        fds[0] = fake_live(memory)->fd;
}

static uint64_t fake_memory_bytes(const struct backend_memory *memory) {
        return fake_live(memory)->bytes;
}

static int fake_memory_compare(const struct backend_memory *a, const struct backend_memory *b) {
        const struct fake_memory *x = fake_live(a), *y = fake_live(b);

        if (x->device != y->device)
                return x->device < y->device ? -1 : 1;
        return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static int fake_memory_check(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal) {
        assert(fake_live(memory)->attached);
        return memory == fake_of(memory)->withdrawn ? refuse(refusal, 20, "holes") : 0;
}

static void fake_result(struct fake_backend *fake, const struct backend_task *task, bool cancelled,
                        struct backend_result *ret) {
        static const double none[LIMIT_LOCAL];

        *ret = (struct backend_result){ .id = task->id,
                                        .cancelled = cancelled,
                                        .n_inputs = task->n_inputs,
                                        .found = task->find && !cancelled ? fake->found : BACKEND_NOWHERE,
                                        .sum_squares = 4,
                                        .input_sum_squares = none,
                                        .input_nonfinite = fake->counts };
}

static size_t fake_room(const struct backend *backend, const struct backend_task *task) {
        size_t room = ((const struct fake_backend *)backend)->room;

        assert(task->elements > 0 && task->n_inputs > 0 && task->n_inputs == task->n_outputs);
        return task->n_inputs * (room > 0 ? room : FAKE_ROOM);
}

static int fake_submit(struct backend *backend, const struct backend_task *task, struct backend_result *ret) {
        struct fake_backend *fake = (struct fake_backend *)backend;
        struct fake_task *kept = &fake->task[fake->n_tasks];

        if (fake->submit_error < 0)
                return fake->submit_error;
        fake->submitted++;
        for (unsigned i = 0; i < task->n_inputs; i++)
                assert(fake_live(task->inputs[i].memory)->attached);
        if (fake->inline_results) {
                fake_result(fake, task, false, ret);
                return 1;
        }
        assert(fake->n_tasks < 64);
        for (unsigned i = 0; task->room != NULL && i < fake->n_tasks; i++)
                assert(fake->task[i].task.room != task->room);
        if (task->room != NULL)
                memset(task->room, 0x5a, task->n_inputs * FAKE_ROOM);
        fake->n_tasks++;
        kept->task = *task;
        kept->cancelled = false;
        kept->withdrawn = 0;
        memcpy(kept->input, task->inputs, task->n_inputs * sizeof(*task->inputs));
        if (task->n_outputs > 0)
                memcpy(kept->output, task->outputs, task->n_outputs * sizeof(*task->outputs));
        for (unsigned i = 0; i < task->n_inputs; i++)
                fake_live(kept->input[i].memory)->tasks++;
        for (unsigned i = 0; i < task->n_outputs; i++)
                fake_live(kept->output[i].memory)->tasks++;
        return 0;
}

/* Lets the oldest task end. */
static inline void fake_end_one(struct fake_backend *fake) {
        struct fake_task ended = fake->task[0];
        struct backend_result result;

        assert(fake->n_tasks > 0);
        memmove(&fake->task[0], &fake->task[1], --fake->n_tasks * sizeof(ended));
        for (unsigned i = 0; i < ended.task.n_inputs; i++)
                fake_live(ended.input[i].memory)->tasks--;
        for (unsigned i = 0; i < ended.task.n_outputs; i++)
                fake_live(ended.output[i].memory)->tasks--;
        fake_result(fake, &ended.task, ended.cancelled || ended.withdrawn > 0, &result);
        result.withdrawn = ended.withdrawn > 0 ? ended.input[ended.withdrawn - 1].memory : NULL;
        fake->done(fake->owner, &result);
}

static void fake_cancel(struct backend *backend, uint64_t id) {
        struct fake_backend *fake = (struct fake_backend *)backend;

        for (unsigned i = 0; i < fake->n_tasks; i++)
                if (fake->task[i].task.id == id)
                        fake->task[i].cancelled = true;
}

static unsigned fake_workers(const struct backend *backend) {
        return 1;
}

static const char *fake_simd(const struct backend *backend) {
        return "none";
}

static uint64_t fake_cpu_us(const struct backend *backend) {
        return 0;
}

static const struct memory_ops fake_memory_ops = {
        .n_fds = 1,
        .request = fake_request,
        .cancel = fake_memory_cancel,
        .fds = fake_memory_fds,
        .bytes = fake_memory_bytes,
        .compare = fake_memory_compare,
        .check = fake_memory_check,
};

static const struct compute_ops fake_compute_ops = {
        .room = fake_room,
        .submit = fake_submit,
        .cancel = fake_cancel,
};

static bool fake_gpu(const struct backend *backend, struct backend_gpu *ret) {
        *ret = (struct backend_gpu){ .uuid = "GPU-fake", .name = "fake", .granularity = 3 * 4096 };
        return container_of(backend, struct fake_backend, backend)->is_gpu;
}

static const struct backend_ops fake_ops = {
        .name = "fake",
        .memory = &fake_memory_ops,
        .compute = &fake_compute_ops,
        .gpu = fake_gpu,
        .workers = fake_workers,
        .simd = fake_simd,
        .cpu_us = fake_cpu_us,
};

static void fake_backend_init(struct fake_backend *fake, struct jobs *jobs) {
        memset(fake, 0, sizeof(*fake));
        fake->backend = (struct backend){ &fake_ops, &fake_memory_ops, &fake_compute_ops };
        fake->done = jobs_done;
        fake->made = jobs_made;
        fake->owner = jobs;
}

/* Ends the requests that are still queued, without an answer. */
static void fake_backend_close(struct fake_backend *fake) {
        struct memory_result result;

        assert(fake->n_tasks == 0);
        for (unsigned i = 0; i < fake->n_requests; i++) {
                fake_answer(fake, &fake->request[i].request, fake->request[i].fd, -ECANCELED, &result);
                assert(result.memory == NULL);
        }
        while (fake->memories != NULL) {
                struct fake_memory *memory = fake->memories;

                fake->memories = memory->next;
                if (!memory->freed)
                        fake_let_go(fake, memory);
                free(memory);
        }
}
