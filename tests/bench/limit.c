/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads and buffers behind limit.h. Within a run the threads meet in a spinning barrier before and
 * after each iteration, so that no system call is in what is measured; between runs they sleep.
 */
#include "limit.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "limit_loops.h"

#define MEMBERS_MAX 64u
#define ALIGN 4096u
#define SPINS 2000u /* then let another thread run: there may be fewer processors than threads */

struct limit {
        unsigned members, threads, sets, next;
        size_t bytes, stride; /* of one set of one member */
        unsigned char *buffer[MEMBERS_MAX];

        pthread_t thread[MEMBERS_MAX];
        unsigned started;
        pthread_barrier_t gate; /* where threads sleep between runs */
        _Alignas(64) atomic_uint arrived;
        _Alignas(64) atomic_uint round;
        enum limit_loop loop; /* the run in progress */
        unsigned iterations;
        bool stop;
};

struct start {
        struct limit *limit;
        unsigned index;
};

static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void meet(struct limit *limit) {
        unsigned round = atomic_load(&limit->round);
        if (atomic_fetch_add(&limit->arrived, 1) + 1 == limit->threads) {
                atomic_store(&limit->arrived, 0);
                atomic_fetch_add(&limit->round, 1);
                return;
        }
        for (unsigned spins = 0; atomic_load(&limit->round) == round; spins++)
                if (spins > SPINS)
                        sched_yield();
}

/* One thread's part of one set: whole cache lines. */
static void work(struct limit *limit, unsigned set, unsigned index) {
        size_t lines = limit->bytes / 64, from = lines * index / limit->threads,
               to = lines * (index + 1) / limit->threads;
        size_t n = (to - from) * 16;
        float *part[MEMBERS_MAX];
        for (unsigned i = 0; i < limit->members; i++)
                part[i] = (float *)(void *)(limit->buffer[i] + set * limit->stride + from * 64);
        if (limit->loop == LIMIT_REDUCE)
                loop_reduce(part, limit->members, n, 1.0f / (float)limit->members);
        for (unsigned i = 0; limit->loop == LIMIT_SCALE && i < limit->members; i++)
                loop_scale(part[i], n, 1.0f / 3);
        for (unsigned i = 0; limit->loop == LIMIT_COPY && i + 1 < limit->members; i += 2)
                loop_copy(part[i + 1], part[i], n);
}

static void iterate(struct limit *limit, unsigned index, int64_t *ns) {
        for (unsigned i = 0; i < limit->iterations; i++) {
                int64_t start;
                meet(limit);
                start = now_ns();
                work(limit, (limit->next + i) % limit->sets, index);
                meet(limit);
                if (ns)
                        ns[i] = now_ns() - start;
        }
}

static void *thread_main(void *data) {
        struct start start = *(struct start *)data;
        free(data);
        for (;;) {
                pthread_barrier_wait(&start.limit->gate);
                if (start.limit->stop)
                        return NULL;
                iterate(start.limit, start.index, NULL);
        }
}

void limit_run(struct limit *limit, enum limit_loop loop, unsigned n, int64_t *ns) {
        limit->loop = loop;
        limit->iterations = n;
        pthread_barrier_wait(&limit->gate);
        iterate(limit, 0, ns);
        limit->next = (limit->next + n) % limit->sets;
}

static int threads_start(struct limit *limit) {
        int r = pthread_barrier_init(&limit->gate, NULL, limit->threads);
        for (unsigned i = 1; r == 0 && i < limit->threads; i++) {
                struct start *start = malloc(sizeof *start);
                if (!start)
                        return ENOMEM;
                *start = (struct start){ limit, i };
                r = pthread_create(&limit->thread[i], NULL, thread_main, start);
        }
        return r;
}

/*
 * Where one member's buffers go: each member's another page after a multiple of 256 MiB, because Zen
 * processors confuse lines whose addresses agree in a hash of bits 12 to 27 (arena.c tells more). The program
 * ends before address space gets short.
 */
static void *place(size_t size, unsigned member) {
        size_t align = (size_t)256 << 20;
        char *reserved =
                mmap(NULL, size + 2 * align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                return NULL;
        return reserved + (align - (uintptr_t)reserved % align) + member * (size_t)ALIGN;
}

static int buffers_map(struct limit *limit) {
        for (unsigned i = 0; i < limit->members; i++) {
                size_t size = limit->sets * limit->stride;
                int fd = memfd_create("limit", MFD_CLOEXEC);
                void *at = place(size, i), *map;
                if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
                        return errno;
                map = at ? mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) : MAP_FAILED;
                close(fd);
                if (map == MAP_FAILED)
                        return errno;
                memset(map, 0, size);
                limit->buffer[i] = map;
        }
        return 0;
}

struct limit *limit_new(unsigned members, size_t bytes, unsigned threads, size_t rotate) {
        struct limit *limit;
        int r;
        if (members < 1 || members > MEMBERS_MAX || threads < 1 || threads > MEMBERS_MAX || bytes < 64) {
                errno = EINVAL;
                return NULL;
        }
        limit = aligned_alloc(64, (sizeof *limit + 63) / 64 * 64);
        if (!limit)
                return NULL;
        memset(limit, 0, sizeof *limit);
        limit->members = members;
        limit->threads = threads;
        limit->bytes = bytes;
        limit->stride = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        limit->sets = (unsigned)(rotate / (limit->stride * members)) + 1;
        r = buffers_map(limit);
        if (r == 0)
                r = threads_start(limit);
        if (r != 0) {
                errno = r;
                return NULL; /* the program ends now: nothing is unwound */
        }
        return limit;
}

struct limit *limit_free(struct limit *limit) {
        if (!limit)
                return NULL;
        limit->stop = true;
        pthread_barrier_wait(&limit->gate);
        for (unsigned i = 1; i < limit->threads; i++)
                pthread_join(limit->thread[i], NULL);
        pthread_barrier_destroy(&limit->gate);
        for (unsigned i = 0; i < limit->members; i++)
                munmap(limit->buffer[i], limit->sets * limit->stride);
        free(limit);
        return NULL;
}

unsigned limit_sets(const struct limit *limit) {
        return limit->sets;
}

size_t limit_copied(const struct limit *limit) {
        return limit->bytes / 64 * 64 * (limit->members / 2);
}

/* From sysfs: what the C library says of some processors is the sum over all of their dies. */
size_t limit_rotation(void) {
        FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
        unsigned long kilobytes = 0;
        if (file) {
                if (fscanf(file, "%luK", &kilobytes) != 1)
                        kilobytes = 0;
                fclose(file);
        }
        return 4 * (size_t)(kilobytes > 0 ? kilobytes << 10 : 32u << 20);
}
