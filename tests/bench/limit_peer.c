/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit that memory and cores set: tight loops over the same kind of buffers (one memfd a member) with
 * the same number of threads as the daemon's workers, but without protocol, slices, statistics or hand-off.
 * Commands:
 *
 *   prepare BYTES COUNT   COUNT sets of buffers that take turns, of BYTES for each member; pages are touched
 *   loop 0                reads k buffers, writes the scaled sum to all k: 2·k·bytes of traffic
 *   loop 1                multiplies k·bytes in place, the plainest loop with the same traffic, by which
 *                         loop 0 is judged
 *   loop 2                copies k·bytes/2 from one half of the buffers to the other
 *   run N                 N iterations; stamps
 *
 * Within a run the threads meet in a spinning barrier before and after each iteration, so that the measured
 * time contains no system call; between runs they sleep.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control.h"
#include "limit_loops.h"

#define MEMBERS_MAX 64u
#define ALIGN 4096u
#define SPINS 2000u /* then let another thread run: there may be fewer processors than threads */

enum limit_loop { LIMIT_REDUCE, LIMIT_SCALE, LIMIT_COPY };

struct limit {
        unsigned members, threads, sets, next;
        size_t bytes, stride; /* of one set of one member */
        unsigned char *buffer[MEMBERS_MAX];

        pthread_t thread[MEMBERS_MAX];
        pthread_barrier_t gate; /* where threads sleep between runs */
        _Alignas(64) atomic_uint arrived;
        _Alignas(64) atomic_uint round;
        enum limit_loop loop; /* the run in progress */
        unsigned iterations;
};

struct start {
        struct limit *limit;
        unsigned index;
};

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

/* The first thread adds up the durations. */
static void iterate(struct limit *limit, unsigned index, int64_t *ns) {
        for (unsigned i = 0; i < limit->iterations; i++) {
                int64_t start;
                meet(limit);
                start = bench_now_ns();
                work(limit, (limit->next + i) % limit->sets, index);
                meet(limit);
                if (ns)
                        ns[i + 1] = ns[i] + bench_now_ns() - start;
        }
}

static void *thread_main(void *data) {
        struct start start = *(struct start *)data;
        free(data);
        while (pthread_barrier_wait(&start.limit->gate) <= 0)
                iterate(start.limit, start.index, NULL);
        return NULL;
}

static void run(struct limit *limit, struct control *c, unsigned n) {
        int64_t *ns = calloc(n + 1, sizeof(*ns));
        if (!ns || !limit->sets)
                bench_die("not prepared, or out of memory");
        limit->iterations = n;
        pthread_barrier_wait(&limit->gate);
        iterate(limit, 0, ns);
        limit->next = (limit->next + n) % limit->sets;
        control_reply_stamps(c, ns, n + 1);
        free(ns);
}

/* Starts the threads, which live as long as the process. */
static void threads_start(struct limit *limit) {
        int r = pthread_barrier_init(&limit->gate, NULL, limit->threads);
        for (unsigned i = 1; r == 0 && i < limit->threads; i++) {
                struct start *start = malloc(sizeof *start);
                if (!start)
                        bench_die("out of memory");
                *start = (struct start){ limit, i };
                r = pthread_create(&limit->thread[i], NULL, thread_main, start);
        }
        if (r != 0)
                bench_die("threads: %s", strerror(r));
}

/*
 * Places one member's buffers: at another page after a multiple of 256 MiB for each member, because Zen
 * processors confuse lines whose addresses agree in a hash of bits 12 to 27 (see arena.c). The program ends
 * before address space gets short.
 */
static void *place(size_t size, unsigned member) {
        size_t align = (size_t)256 << 20;
        char *reserved =
                mmap(NULL, size + 2 * align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                bench_die("no address space: %s", strerror(errno));
        return reserved + (align - (uintptr_t)reserved % align) + member * (size_t)ALIGN;
}

static void release(void *data) {
        struct limit *limit = data;
        for (unsigned i = 0; limit->sets && i < limit->members; i++)
                munmap(limit->buffer[i], limit->sets * limit->stride);
        limit->sets = 0;
}

static void prepare(struct limit *limit, size_t bytes, unsigned sets) {
        release(limit);
        limit->bytes = bytes;
        limit->stride = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        limit->sets = sets;
        limit->next = 0;
        for (unsigned i = 0; i < limit->members; i++) {
                size_t size = sets * limit->stride;
                int fd = memfd_create("limit", MFD_CLOEXEC);
                void *map = MAP_FAILED;
                if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
                        map = mmap(place(size, i), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                                   0);
                if (map == MAP_FAILED)
                        bench_die("buffers: %s", strerror(errno));
                close(fd);
                memset(map, 0, size);
                limit->buffer[i] = map;
        }
}

static bool obey(void *data, struct control *c, const char *line) {
        struct limit *limit = data;
        size_t bytes;
        unsigned n;

        if (sscanf(line, "prepare %zu %u", &bytes, &n) == 2 && bytes >= 64 && n > 0) {
                prepare(limit, bytes, n);
                control_reply(c, "ready %zu", bytes / 64 * 64 * (limit->members / 2));
        } else if (sscanf(line, "loop %u", &n) == 1 && n <= LIMIT_COPY) {
                limit->loop = (enum limit_loop)n;
                control_reply(c, "loop");
        } else if (sscanf(line, "run %u", &n) == 1) {
                run(limit, c, n);
        } else {
                return false;
        }
        return true;
}

int main(int argc, char **argv) {
        static struct limit limit;
        struct control c;

        if (argc != 6)
                bench_die("usage: %s SOCKET GATE CONTENDER MEMBERS THREADS", argv[0]);
        limit.members = (unsigned)strtoul(argv[4], NULL, 10);
        limit.threads = (unsigned)strtoul(argv[5], NULL, 10);
        if (limit.members < 1 || limit.members > MEMBERS_MAX || limit.threads < 1 ||
            limit.threads > MEMBERS_MAX)
                bench_die("1 to %u members and threads", MEMBERS_MAX);
        threads_start(&limit);
        control_open(&c, argv[1], argv[3], 0);
        bench_serve(&(struct bench_peer){ .data = &limit, .release = release, .obey = obey }, &c);
        release(&limit);
        return 0;
}
