/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend for CPUs: the tables of backend.h, over arenas (arena.c), tasks (task.c), workers (pool.c) and
 * kernels (daemon/kernel). Small tasks are done here, on the loop thread, at once: waking a worker would cost
 * more. So are middling ones while nothing else is going on, as long as they take no more than a quarter of
 * the loop thread's time. When many come quickly they go to the workers, which are awake then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "arena.h"
#include "backend/backend.h"
#include "base/cleanup.h"
#include "base/cpus.h"
#include "base/log.h"
#include "guard.h"
#include "pool.h"
#include "reaper.h"
#include "task.h"

#define SMALL_TRAFFIC (64u << 10)     /* bytes of all inputs: a few microseconds */
#define MIDDLING_TRAFFIC (256u << 10) /* bytes of all inputs: some ten microseconds */
#define MIDDLING_REST 3u              /* times the duration of a middling task, before the next one here */
#define WORKERS_MAX 1024u
#define FILES 1024u /* lists of arenas by their file */

_Static_assert(MIDDLING_TRAFFIC <= TASK_REUSE_SLICES * KERNEL_SLICE_SMALL,
               "a middling task fits the reusable one");

struct host {
        struct backend backend;
        const struct kernel_set *kernels;
        struct pool *pool;
        struct arena_home arenas;
        backend_done_fn done;
        void *owner;
        struct task *here; /* the one task done on the loop thread, and its result */
        uint64_t nonfinite[LIMIT_LOCAL];
        struct list files[FILES]; /* arenas that a daemon has made, this one or a former one */
        uint64_t rest_until;      /* nanoseconds; no middling task on the loop thread before */
};

static struct host *host_of(struct backend *backend) {
        return container_of(backend, struct host, backend);
}

static const struct host *host_of_const(const struct backend *backend) {
        return container_of(backend, struct host, backend);
}

static struct backend *host_close(struct backend *backend) {
        struct host *host = backend ? host_of(backend) : NULL;
        if (!host)
                return NULL;
        pool_free(host->pool);
        reaper_free(host->arenas.reaper);
        fd_close(host->arenas.guard);
        task_free(host->here);
        free(host);
        return NULL;
}

/* Opens the guard. Without it tasks look whether members have punched holes, which members may also do just
 * after the look. */
static void host_guard(struct host *host) {
        host->arenas.guard = guard_open();
        if (host->arenas.guard < 0)
                log_write(
                        LOG_NOTICE, NULL,
                        "userfaultfd(2) cannot be used (%s): a member that punches holes into shared memory "
                        "while it is being reduced can make gradsyncd allocate some; allow the system call",
                        strerror(-host->arenas.guard));
}

/* Opens the parts of the backend. After a failure the parts that are open stay in *host for host_close(). */
static int host_init(struct host *host, const struct backend_config *config) {
        unsigned workers = config->workers ? config->workers : cpus_available();
        if (workers > WORKERS_MAX)
                return -EINVAL;
        host->kernels = kernel_select();
        if (!host->kernels)
                return -ENOTSUP;
        host->here = task_reusable();
        if (!host->here)
                return -ENOMEM;
        host_guard(host);
        int r = reaper_new(&host->arenas.reaper);
        if (r < 0)
                return r;
        return pool_new(workers, config->has_affinity ? &config->affinity : NULL, &host->pool);
}

static int host_open(const struct backend_config *config, struct backend **ret) {
        struct host *host = calloc(1, sizeof *host);
        if (!host)
                return -ENOMEM;
        host->backend = (struct backend){ &backend_host, backend_host.memory, backend_host.compute };
        host->arenas.guard = -ENOSYS;
        host->done = config->done;
        host->owner = config->owner;
        for (unsigned i = 0; i < FILES; i++)
                list_init(&host->files[i]);
        int r = host_init(host, config);
        if (r < 0) {
                host_close(&host->backend);
                return r;
        }
        *ret = &host->backend;
        return 0;
}

static int host_fd(struct backend *backend) {
        return pool_fd(host_of(backend)->pool);
}

static void host_dispatch(struct backend *backend) {
        struct host *host = host_of(backend);
        struct list finished = LIST_INIT(finished);
        pool_take(host->pool, &finished);
        while (!list_empty(&finished)) {
                struct task *task = list_entry(finished.next, struct task, unfinished);
                /* From done() on the owner has its room again. */
                struct task *own = task->in_room ? NULL : task;
                struct backend_result result;
                list_remove(&task->unfinished);
                task_result(task, &result);
                host->done(host->owner, &result);
                task_free(own);
        }
}

static struct list *host_files(struct host *host, const struct arena *arena) {
        return &host->files[arena->file.inode % FILES];
}

static bool host_has_file(struct host *host, const struct arena *arena) {
        const struct arena *other;

        list_for_each(other, host_files(host, arena), by_file)
                if (other->file.inode == arena->file.inode && other->file.device == arena->file.device)
                        return true;
        return false;
}

/* Takes over a memory that a former daemon had made. One memory belongs to one member, in one plan: two that
 * shared it would write over each other's gradients. */
static int host_take_back(struct host *host, const struct memory_request *request, struct arena **ret,
                          struct refusal *refusal) {
        int r = arena_adopt(&host->arenas, request, ret, refusal);

        if (r != 0 || !host_has_file(host, *ret))
                return r;
        request->fds[0] = (*ret)->fd; /* the caller keeps it */
        (*ret)->fd = -1;
        *ret = arena_free(*ret);
        return refuse(
                refusal, WIRE__CODE__INVALID,
                "it is an arena, or staging memory, that has been brought back already: each plan of each "
                "member has its own");
}

/* Does a request at once, because none takes long: pages come and go with the processes that touch them. Only
 * the freeing of large memory takes long. The reaper does that afterwards, and no caller waits for it. */
static int host_request(struct backend *backend, const struct memory_request *request,
                        struct memory_result *ret) {
        struct host *host = host_of(backend);
        struct arena *arena = NULL;
        int r = 0;
        switch (request->kind) {
        case MEMORY_SHARED:
        case MEMORY_OWN: r = arena_new(&host->arenas, request, &arena); break;
        case MEMORY_OFFERED: r = arena_adopt(&host->arenas, request, &arena, &ret->refusal); break;
        case MEMORY_RETURNED: r = host_take_back(host, request, &arena, &ret->refusal); break;
        case MEMORY_ATTACH: r = arena_attach(arena_of(request->memory), &ret->refusal); break;
        case MEMORY_FREE: arena_free(arena_of(request->memory)); break;
        }
        if (r == 0 && (request->kind == MEMORY_SHARED || request->kind == MEMORY_RETURNED))
                list_append(host_files(host, arena), &arena->by_file);
        ret->id = request->id;
        ret->error = r;
        ret->memory = r == 0 && arena ? &arena->memory : NULL;
        if (ret->memory)
                arena->memory.backend = backend;
        return 1;
}

static void host_memory_cancel(struct backend *backend, uint64_t id) {}

static void host_fds(const struct backend_memory *memory, int fds[MEMORY_FDS]) {
        fds[0] = arena_of(memory)->fd;
}

static uint64_t host_bytes(const struct backend_memory *memory) {
        return arena_of(memory)->bytes;
}

/* Compares the files, whatever descriptors lead to them. */
static int host_compare(const struct backend_memory *a, const struct backend_memory *b) {
        const struct memfd_file *x = &arena_of(a)->file, *y = &arena_of(b)->file;
        if (x->device != y->device)
                return x->device < y->device ? -1 : 1;
        return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static void *host_companion(const struct backend_memory *memory) {
        return arena_of(memory)->companion;
}

static void *host_address(const struct backend_memory *memory) {
        return arena_of(memory)->map;
}

static int host_check(struct backend_memory *memory, uint64_t bytes, struct refusal *refusal) {
        return arena_check(arena_of(memory), bytes, refusal);
}

static uint64_t host_now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static int host_submit_pool(struct host *host, const struct backend_task *description) {
        struct task *task;
        int r = task_new(host->kernels, description, &task);
        if (r == 0)
                pool_submit(host->pool, task);
        return r;
}

/* Does the same steps as a worker, one after the other. If some memory is missing, a worker gets the task and
 * finds that, too, so that it is reported in one way only. */
static int host_run_here(struct host *host, const struct backend_task *description,
                         struct backend_result *ret) {
        bool goes_on = true;
        int r = task_reuse(host->here, host->kernels, description);
        if (r < 0)
                return r;
        for (unsigned slice = 0; goes_on && slice < host->here->slices; slice++) {
                if (task_run(host->here, slice, host->nonfinite) != NULL)
                        return host_submit_pool(host, description);
                goes_on = task_count(host->here, host->nonfinite);
        }
        task_combine(host->here);
        task_result(host->here, ret);
        return 1;
}

static int host_run_here_middling(struct host *host, const struct backend_task *description,
                                  struct backend_result *ret, uint64_t start) {
        int r = host_run_here(host, description, ret);
        uint64_t end = host_now_ns();
        host->rest_until = end + MIDDLING_REST * (end - start);
        return r;
}

static size_t host_room(const struct backend *backend, const struct backend_task *description) {
        return task_traffic(description) > SMALL_TRAFFIC ? task_room(description) : 0;
}

static int host_submit(struct backend *backend, const struct backend_task *description,
                       struct backend_result *ret) {
        struct host *host = host_of(backend);
        uint64_t traffic = task_traffic(description), start;
        if (traffic <= SMALL_TRAFFIC)
                return host_run_here(host, description, ret);
        if (traffic <= MIDDLING_TRAFFIC && (start = host_now_ns()) >= host->rest_until &&
            pool_empty(host->pool))
                return host_run_here_middling(host, description, ret, start);
        return host_submit_pool(host, description);
}

static void host_cancel(struct backend *backend, uint64_t id) {
        pool_cancel(host_of(backend)->pool, id);
}

static unsigned host_ping(struct backend *backend) {
        return pool_ping(host_of(backend)->pool);
}

static bool host_gpu(const struct backend *backend, struct backend_gpu *ret) {
        return false;
}

static unsigned host_workers(const struct backend *backend) {
        return pool_workers(host_of_const(backend)->pool);
}

static const char *host_simd(const struct backend *backend) {
        return host_of_const(backend)->kernels->name;
}

static uint64_t host_cpu_us(const struct backend *backend) {
        return pool_cpu_us(host_of_const(backend)->pool);
}

static const struct memory_ops host_memory = {
        .n_fds = 1,
        .request = host_request,
        .cancel = host_memory_cancel,
        .fds = host_fds,
        .bytes = host_bytes,
        .compare = host_compare,
        .address = host_address,
        .companion = host_companion,
        .check = host_check,
};

static const struct compute_ops host_compute = {
        .room = host_room,
        .submit = host_submit,
        .cancel = host_cancel,
};

const struct backend_ops backend_host = {
        .name = "host",
        .memory = &host_memory,
        .compute = &host_compute,
        .open = host_open,
        .close = host_close,
        .fd = host_fd,
        .dispatch = host_dispatch,
        .ping = host_ping,
        .gpu = host_gpu,
        .workers = host_workers,
        .simd = host_simd,
        .cpu_us = host_cpu_us,
};
