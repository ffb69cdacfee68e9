/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend for tests of the job and session layers: it reduces nothing, keeps each submitted task until the
 * test lets it end, and enforces the contract: no memory is freed while a task uses it, no id twice, results
 * only for known tasks, a room for one task at a time.
 */
#pragma once

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/cleanup.h"
#include "proto/memfd.h"

#define FAKE_ROOM 40u /* bytes for each input */

struct fake_memory {
        struct backend_memory memory;
        int fd;
        uint64_t bytes;
        unsigned tasks;
        bool attached;
};

struct fake_task {
        struct backend_task task;
        struct backend_range input[LIMIT_LOCAL], output[LIMIT_LOCAL];
        bool cancelled;
        unsigned punched; /* as in struct backend_result; set by the test */
};

struct fake_backend {
        struct backend backend;
        backend_done_fn done;
        void *owner;
        struct fake_task task[64];
        unsigned n_tasks, n_arenas, submitted;
        bool inline_results, refuse_attach;
        const struct backend_memory *punched; /* what check() finds a hole in */
        int arena_error;                      /* what new() fails with */
        int submit_error;                     /* and submit() */
        size_t room;                          /* what room() says; 0: FAKE_ROOM */
        double sums[LIMIT_LOCAL];
        uint64_t counts[LIMIT_LOCAL];
        uint64_t found; /* by a task that looks for something */
};

static struct fake_backend *fake_of(const struct backend_memory *memory) {
        return container_of(memory->backend, struct fake_backend, backend);
}

static struct fake_memory *fake_memory_of(const struct backend_memory *memory) {
        return container_of(memory, struct fake_memory, memory);
}

static struct backend_memory *fake_memory_made(struct backend *backend, int fd, uint64_t bytes,
                                               bool attached) {
        struct fake_memory *memory = calloc(1, sizeof(*memory));

        *memory = (struct fake_memory){
                .memory.backend = backend, .fd = fd, .bytes = bytes, .attached = attached
        };
        ((struct fake_backend *)backend)->n_arenas++;
        return &memory->memory;
}

static int fake_memory_new(struct backend *backend, uint64_t bytes, struct backend_memory **ret) {
        int fd;

        if (((struct fake_backend *)backend)->arena_error < 0)
                return ((struct fake_backend *)backend)->arena_error;
        fd = memfd_create("fake", MFD_CLOEXEC);
        assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
        *ret = fake_memory_made(backend, fd, bytes, false);
        return 0;
}

static int fake_memory_fd(const struct backend_memory *memory) {
        return fake_memory_of(memory)->fd;
}

static uint64_t fake_memory_bytes(const struct backend_memory *memory) {
        return fake_memory_of(memory)->bytes;
}

static int fake_memory_attach(struct backend_memory *memory, struct refusal *refusal) {
        if (fake_of(memory)->refuse_attach)
                return refuse(refusal, 20, "not touched");
        fake_memory_of(memory)->attached = true;
        return 0;
}

static int fake_memory_adopt(struct backend *backend, int fd, uint64_t offset, uint64_t bytes,
                             struct memfd_file *ret_file, struct backend_memory **ret,
                             struct refusal *refusal) {
        char text[256];
        int r = memfd_check(fd, offset, bytes, ret_file, text, sizeof(text));

        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        if (r == 0)
                *ret = fake_memory_made(backend, fd, bytes, true);
        return r;
}

static int fake_memory_check(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal) {
        assert(fake_memory_of(memory)->attached);
        return memory == fake_of(memory)->punched ? refuse(refusal, 20, "holes") : 0;
}

static struct backend_memory *fake_memory_free(struct backend_memory *memory) {
        if (memory == NULL)
                return NULL;
        assert(fake_memory_of(memory)->tasks == 0); /* the daemon's last access has ended */
        close(fake_memory_of(memory)->fd);
        fake_of(memory)->n_arenas--;
        free(fake_memory_of(memory));
        return NULL;
}

static void fake_result(struct fake_backend *fake, const struct backend_task *task, bool cancelled,
                        struct backend_result *ret) {
        *ret = (struct backend_result){ .id = task->id,
                                        .cancelled = cancelled,
                                        .n_inputs = task->n_inputs,
                                        .found = task->find && !cancelled ? fake->found : BACKEND_NOWHERE,
                                        .sum_squares = 4,
                                        .input_sum_squares = fake->sums,
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
                assert(fake_memory_of(task->inputs[i].memory)->attached);
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
        kept->punched = 0;
        memcpy(kept->input, task->inputs, task->n_inputs * sizeof(*task->inputs));
        memcpy(kept->output, task->outputs, task->n_outputs * sizeof(*task->outputs));
        for (unsigned i = 0; i < task->n_inputs; i++)
                fake_memory_of(kept->input[i].memory)->tasks++;
        for (unsigned i = 0; i < task->n_outputs; i++)
                fake_memory_of(kept->output[i].memory)->tasks++;
        return 0;
}

/* Lets the oldest task end. */
static inline void fake_end_one(struct fake_backend *fake) {
        struct fake_task ended = fake->task[0];
        struct backend_result result;

        assert(fake->n_tasks > 0);
        memmove(&fake->task[0], &fake->task[1], --fake->n_tasks * sizeof(ended));
        for (unsigned i = 0; i < ended.task.n_inputs; i++)
                fake_memory_of(ended.input[i].memory)->tasks--;
        for (unsigned i = 0; i < ended.task.n_outputs; i++)
                fake_memory_of(ended.output[i].memory)->tasks--;
        fake_result(fake, &ended.task, ended.cancelled || ended.punched > 0, &result);
        result.punched = ended.punched;
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
        .new = fake_memory_new,
        .fd = fake_memory_fd,
        .bytes = fake_memory_bytes,
        .adopt = fake_memory_adopt,
        .attach = fake_memory_attach,
        .check = fake_memory_check,
        .free = fake_memory_free,
};

static const struct compute_ops fake_compute_ops = {
        .room = fake_room,
        .submit = fake_submit,
        .cancel = fake_cancel,
};

static const struct backend_ops fake_ops = {
        .name = "fake",
        .memory = &fake_memory_ops,
        .compute = &fake_compute_ops,
        .workers = fake_workers,
        .simd = fake_simd,
        .cpu_us = fake_cpu_us,
};

static void fake_backend_init(struct fake_backend *fake, backend_done_fn done, void *owner) {
        memset(fake, 0, sizeof(*fake));
        fake->backend = (struct backend){ &fake_ops, &fake_memory_ops, &fake_compute_ops };
        fake->done = done;
        fake->owner = owner;
}
