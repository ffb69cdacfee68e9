/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend for tests of the job and session layers: it reduces nothing, keeps each submitted task until the
 * test lets it end, and enforces the contract: no arena is freed while a task uses it, no id twice, results
 * only for known tasks, a room for one task at a time.
 */
#pragma once

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/backend.h"
#include "proto/memfd.h"

#define FAKE_ROOM 40u /* bytes for each input */

struct backend_arena {
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
        const struct backend_arena *punched; /* what arena_check() finds a hole in */
        int arena_error;                     /* what arena_new() fails with */
        int submit_error;                    /* and submit() */
        size_t room;                         /* what room() says; 0: FAKE_ROOM */
        double sums[LIMIT_LOCAL];
        uint64_t counts[LIMIT_LOCAL];
};

static int fake_arena_new(struct backend *backend, uint64_t bytes, struct backend_arena **ret) {
        struct backend_arena *arena;

        if (((struct fake_backend *)backend)->arena_error < 0)
                return ((struct fake_backend *)backend)->arena_error;
        arena = calloc(1, sizeof(*arena));
        arena->fd = memfd_create("fake", MFD_CLOEXEC);
        assert(arena->fd >= 0 && ftruncate(arena->fd, (off_t)bytes) == 0);
        arena->bytes = bytes;
        ((struct fake_backend *)backend)->n_arenas++;
        *ret = arena;
        return 0;
}

static int fake_arena_fd(const struct backend_arena *arena) {
        return arena->fd;
}

static uint64_t fake_arena_bytes(const struct backend_arena *arena) {
        return arena->bytes;
}

static struct fake_backend *fake_current; /* arenas do not know their backend */

static int fake_arena_attach(struct backend_arena *arena, struct refusal *refusal) {
        if (fake_current->refuse_attach)
                return refuse(refusal, 20, "not touched");
        arena->attached = true;
        return 0;
}

static int fake_arena_adopt(struct backend *backend, int fd, uint64_t offset, uint64_t bytes,
                            struct memfd_file *ret_file, struct backend_arena **ret,
                            struct refusal *refusal) {
        struct backend_arena *arena;
        char text[256];
        int r = memfd_check(fd, offset, bytes, ret_file, text, sizeof(text));

        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        if (r < 0)
                return r;
        arena = calloc(1, sizeof(*arena));
        *arena = (struct backend_arena){ .fd = fd, .bytes = bytes, .attached = true };
        ((struct fake_backend *)backend)->n_arenas++;
        *ret = arena;
        return 0;
}

static int fake_arena_check(struct backend_arena *arena, uint64_t bytes, struct refusal *refusal) {
        assert(arena->attached);
        return arena == fake_current->punched ? refuse(refusal, 20, "holes") : 0;
}

static unsigned fake_reads; /* of arenas */

static void fake_arena_read(const struct backend_arena *arena, uint64_t offset, void *to, size_t size) {
        fake_reads++;
        assert(arena->attached && offset + size <= arena->bytes);
        memset(to, 0, size);
}

static struct backend_arena *fake_arena_free(struct backend_arena *arena) {
        if (arena == NULL)
                return NULL;
        assert(arena->tasks == 0); /* the daemon's last access has ended */
        close(arena->fd);
        free(arena);
        fake_current->n_arenas--;
        return NULL;
}

static void fake_result(struct fake_backend *fake, const struct backend_task *task, bool cancelled,
                        struct backend_result *ret) {
        *ret = (struct backend_result){ .id = task->id,
                                        .cancelled = cancelled,
                                        .n_inputs = task->n_inputs,
                                        .sum_squares = 4,
                                        .input_sum_squares = fake->sums,
                                        .input_nonfinite = fake->counts };
}

static size_t fake_room(const struct backend_task *task) {
        assert(task->elements > 0 && task->n_inputs > 0 && task->n_inputs == task->n_outputs);
        return task->n_inputs * (fake_current->room > 0 ? fake_current->room : FAKE_ROOM);
}

static int fake_submit(struct backend *backend, const struct backend_task *task, struct backend_result *ret) {
        struct fake_backend *fake = (struct fake_backend *)backend;
        struct fake_task *kept = &fake->task[fake->n_tasks];

        if (fake->submit_error < 0)
                return fake->submit_error;
        fake->submitted++;
        for (unsigned i = 0; i < task->n_inputs; i++)
                assert(task->inputs[i].arena->attached);
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
                kept->input[i].arena->tasks++;
        for (unsigned i = 0; i < task->n_outputs; i++)
                kept->output[i].arena->tasks++;
        return 0;
}

/* Lets the oldest task end. */
static inline void fake_end_one(struct fake_backend *fake) {
        struct fake_task ended = fake->task[0];
        struct backend_result result;

        assert(fake->n_tasks > 0);
        memmove(&fake->task[0], &fake->task[1], --fake->n_tasks * sizeof(ended));
        for (unsigned i = 0; i < ended.task.n_inputs; i++)
                ended.input[i].arena->tasks--;
        for (unsigned i = 0; i < ended.task.n_outputs; i++)
                ended.output[i].arena->tasks--;
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

static const struct backend_ops fake_ops = {
        .name = "fake",
        .arena_new = fake_arena_new,
        .arena_fd = fake_arena_fd,
        .arena_bytes = fake_arena_bytes,
        .arena_adopt = fake_arena_adopt,
        .arena_attach = fake_arena_attach,
        .arena_check = fake_arena_check,
        .arena_read = fake_arena_read,
        .arena_free = fake_arena_free,
        .room = fake_room,
        .submit = fake_submit,
        .cancel = fake_cancel,
        .workers = fake_workers,
        .simd = fake_simd,
        .cpu_us = fake_cpu_us,
};

static void fake_backend_init(struct fake_backend *fake, backend_done_fn done, void *owner) {
        memset(fake, 0, sizeof(*fake));
        fake->backend.ops = &fake_ops;
        fake->done = done;
        fake->owner = owner;
        fake_current = fake;
}
