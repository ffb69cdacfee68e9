/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_bench [--rounds N] [--workers N] [--members K] [--bytes B] [--dtype f32|f16|bf16|f64]
 * [--no-statistics] [--no-rotation]
 *
 * The host backend alone beside its limit: no socket, no daemon. Both are measured in turns, one reduction
 * each, over rotating buffers; one JSON line per case with medians, least times and their ratios. Without
 * --members and --bytes it goes through the usual cases. For tuning; the benchmark of the whole is run.sh.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "backend/backend.h"
#include "limit.h"
#include "proto/gradsync.pb-c.h"

struct options {
        unsigned rounds, workers, members, dtype;
        size_t bytes, rotate;
        bool statistics;
};

struct subject {
        struct backend *backend;
        struct backend_memory *arena[16];
        unsigned members, sets, next, done;
        size_t bytes, stride, elements;
        unsigned dtype;
        bool statistics;
};

static void on_done(void *owner, const struct backend_result *result) {
        ((struct subject *)owner)->done++;
}

static int64_t now_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void die(const char *what, int error) {
        fprintf(stderr, "host_bench: %s: %s\n", what, strerror(error));
        exit(1);
}

static struct backend_memory *subject_ask(struct subject *subject, const struct memory_request *request) {
        struct memory_result result;
        if (backend_host.memory->request(subject->backend, request, &result) != 1 || result.error != 0)
                die("memory", EINVAL);
        return result.memory;
}

static void subject_open(struct subject *subject, const struct options *options, unsigned members,
                         size_t bytes) {
        struct backend_config config = { .workers = options->workers, .done = on_done, .owner = subject };
        size_t each = options->dtype == WIRE__DTYPE__F64 ? 8 : options->dtype == WIRE__DTYPE__F32 ? 4 : 2;
        int r = backend_host.open(&config, &subject->backend);
        if (r < 0)
                die("open", -r);
        *subject = (struct subject){ .backend = subject->backend,
                                     .members = members,
                                     .bytes = bytes,
                                     .stride = (bytes + 4095) / 4096 * 4096,
                                     .elements = bytes / each,
                                     .dtype = options->dtype,
                                     .statistics = options->statistics };
        subject->sets = (unsigned)(options->rotate / (subject->stride * members)) + 1;
        for (unsigned i = 0; i < members; i++) {
                size_t size = subject->sets * subject->stride;
                int fds[MEMORY_FDS];
                void *map;
                subject->arena[i] = subject_ask(subject, &(struct memory_request){ .kind = MEMORY_SHARED,
                                                                                   .bytes = size });
                backend_host.memory->fds(subject->arena[i], fds);
                map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
                if (map == MAP_FAILED)
                        die("mmap", errno);
                memset(map, 0, size);
                munmap(map, size);
                subject_ask(subject,
                            &(struct memory_request){ .kind = MEMORY_ATTACH, .memory = subject->arena[i] });
        }
}

static void subject_close(struct subject *subject) {
        for (unsigned i = 0; i < subject->members; i++)
                subject_ask(subject,
                            &(struct memory_request){ .kind = MEMORY_FREE, .memory = subject->arena[i] });
        backend_host.close(subject->backend);
}

/* One reduction, from submit() to the delivery of its result. */
static int64_t subject_run(struct subject *subject) {
        struct backend_range range[16];
        struct backend_task task = { .id = 1,
                                     .turn = 1,
                                     .dtype = subject->dtype,
                                     .reduce = WIRE__REDUCE__AVG,
                                     .divisor = subject->members,
                                     .elements = subject->elements,
                                     .n_inputs = subject->members,
                                     .n_outputs = subject->members,
                                     .inputs = range,
                                     .outputs = range,
                                     .statistics = subject->statistics };
        struct backend_result result;
        int64_t start;
        int r;
        for (unsigned i = 0; i < subject->members; i++)
                range[i] = (struct backend_range){ subject->arena[i], subject->next * subject->stride };
        subject->next = (subject->next + 1) % subject->sets;
        subject->done = 0;
        start = now_ns();
        r = backend_host.compute->submit(subject->backend, &task, &result);
        if (r < 0)
                die("submit", -r);
        while (r == 0 && subject->done == 0) {
                struct pollfd fd = { .fd = backend_host.fd(subject->backend), .events = POLLIN };
                poll(&fd, 1, -1);
                backend_host.dispatch(subject->backend);
        }
        return now_ns() - start;
}

static int compare(const void *a, const void *b) {
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return (x > y) - (x < y);
}

static void measure(const struct options *options, unsigned members, size_t bytes) {
        struct subject subject;
        struct limit *limit;
        unsigned n = options->rounds;
        int64_t *ours = calloc(n, sizeof *ours), *best = calloc(n, sizeof *best),
                *scale = calloc(n, sizeof *scale);
        uint64_t cpu;
        subject_open(&subject, options, members, bytes);
        limit = limit_new(members, bytes, backend_host.workers(subject.backend), options->rotate);
        if (!limit || !ours || !best || !scale)
                die("limit", errno);
        for (unsigned i = 0; i < subject.sets; i++)
                subject_run(&subject); /* the daemon's own page tables */
        cpu = backend_host.cpu_us(subject.backend);
        for (unsigned i = 0; i < n; i++) {
                ours[i] = subject_run(&subject);
                limit_run(limit, LIMIT_REDUCE, 1, &best[i]);
                limit_run(limit, LIMIT_SCALE, 1, &scale[i]);
        }
        cpu = backend_host.cpu_us(subject.backend) - cpu;
        qsort(ours, n, sizeof *ours, compare);
        qsort(best, n, sizeof *best, compare);
        qsort(scale, n, sizeof *scale, compare);
        printf("{\"simd\": \"%s\", \"members\": %u, \"bytes\": %zu, \"sets\": %u, \"us\": %.2f, "
               "\"limit_us\": %.2f, "
               "\"scale_us\": %.2f, \"ratio\": %.3f, \"least_us\": %.2f, \"least_limit_us\": %.2f, "
               "\"least_scale_us\": "
               "%.2f, \"least_ratio\": %.3f, \"cpu_us\": %.1f}\n",
               backend_host.simd(subject.backend), members, bytes, subject.sets, (double)ours[n / 2] / 1000,
               (double)best[n / 2] / 1000, (double)scale[n / 2] / 1000,
               (double)ours[n / 2] / (double)best[n / 2], (double)ours[0] / 1000, (double)best[0] / 1000,
               (double)scale[0] / 1000, (double)ours[0] / (double)best[0], (double)cpu / n);
        fflush(stdout);
        limit_free(limit);
        subject_close(&subject);
        free(ours);
        free(best);
        free(scale);
}

static unsigned dtype_parse(const char *name) {
        return strcmp(name, "f64") == 0    ? WIRE__DTYPE__F64
               : strcmp(name, "f16") == 0  ? WIRE__DTYPE__F16
               : strcmp(name, "bf16") == 0 ? WIRE__DTYPE__BF16
                                           : WIRE__DTYPE__F32;
}

static void options_parse(int argc, char **argv, struct options *options) {
        static const struct option names[] = {
                { "rounds", required_argument, NULL, 'n' },  { "workers", required_argument, NULL, 'w' },
                { "members", required_argument, NULL, 'm' }, { "bytes", required_argument, NULL, 'b' },
                { "dtype", required_argument, NULL, 'd' },   { "no-statistics", no_argument, NULL, 's' },
                { "no-rotation", no_argument, NULL, 'r' },   { 0 },
        };
        int c;
        *options = (struct options){
                .rounds = 61, .dtype = WIRE__DTYPE__F32, .rotate = limit_rotation(), .statistics = true
        };
        while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
                if (c == 'n')
                        options->rounds = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'w')
                        options->workers = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'm')
                        options->members = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'b')
                        options->bytes = strtoull(optarg, NULL, 10);
                else if (c == 'd')
                        options->dtype = dtype_parse(optarg);
                else if (c == 's')
                        options->statistics = false;
                else if (c == 'r')
                        options->rotate = 0;
                else
                        exit(2);
        }
        if (options->rounds == 0 || options->members > 16)
                exit(2);
}

int main(int argc, char **argv) {
        static const size_t sizes[] = { 4 << 10, 64 << 10, 1 << 20, 25 << 20, 128 << 20 };
        struct options options;
        options_parse(argc, argv, &options);
        for (unsigned members = 2; members <= 4; members += 2)
                for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
                        if (options.members == 0 && options.bytes == 0)
                                measure(&options, members, sizes[i]);
                        else if (options.bytes == 0 && members == 2)
                                measure(&options, options.members, sizes[i]);
                        else if (options.members == 0 && i == 0)
                                measure(&options, members, options.bytes);
                        else if (options.members && options.bytes && members == 2 && i == 0)
                                measure(&options, options.members, options.bytes);
                }
        return 0;
}
