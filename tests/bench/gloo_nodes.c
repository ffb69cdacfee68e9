/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how the resources of Gloo grow with the nodes of a job: `gloo_nodes HELPER NODES...` makes
 * communicators of so many nodes on this machine, with the lanes of a job, through the table of functions of
 * the engine. It prints one line for each number of nodes: the time until all nodes reach each other;
 * descriptors, threads and resident memory of a helper; and the time of a comparison and of an allreduce of 1
 * MiB of f32, all nodes together.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engines.h"
#include "gradsync.pb-c.h"

#define MOST 64u
#define LANES 4u
#define BYTES (1u << 20)
#define ROUNDS 15
#define DEADLINE 120000 /* ms without any event */

struct site {
        struct engines engines;
        struct engine *engine;
        int built, failed;
        uint64_t done;
};

static struct site site[MOST];
static uint32_t n_sites;

static void fail(const char *what) {
        fprintf(stderr, "gloo_nodes: %s\n", what);
        exit(EXIT_FAILURE);
}

static void on_publish(void *owner, uint64_t comm, const void *table, size_t bytes) {
        uint32_t from = (uint32_t)((struct site *)owner - site);

        for (uint32_t i = 0; i < n_sites; i++)
                if (i != from)
                        site[i].engine->ops->learn(site[i].engine, comm, from, table, bytes);
}

static void on_built(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n) {
        ((struct site *)owner)->built++;
        ((struct site *)owner)->failed |= n > 0;
}

static void on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value) {
        ((struct site *)owner)->done = sequence;
}

static void on_unreachable(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n) {
        ((struct site *)owner)->failed = 1;
}

static void on_aborted(void *owner, uint64_t comm) {}

static const struct engine_events events = { on_publish, on_built, on_done, on_unreachable, on_aborted };

static void pass(void) {
        struct pollfd fds[MOST];

        for (uint32_t i = 0; i < n_sites; i++)
                fds[i] = (struct pollfd){ .fd = site[i].engine->ops->fd(site[i].engine), .events = POLLIN };
        if (poll(fds, n_sites, DEADLINE) <= 0)
                fail("nothing comes any more");
        for (uint32_t i = 0; i < n_sites; i++) {
                if (fds[i].revents != 0)
                        site[i].engine->ops->dispatch(site[i].engine);
                if (site[i].failed)
                        fail("not all reach all");
        }
}

static void open_all(const char *helper) {
        struct engines_config config = { .gloo_helper = helper, .silence = DEADLINE };

        for (uint32_t i = 0; i < n_sites; i++) {
                int fd = memfd_create("bench", MFD_CLOEXEC);
                struct engine_memory memory = { NULL, fd, BYTES };

                memset(&site[i], 0, sizeof(site[i]));
                if (fd < 0 || ftruncate(fd, BYTES) < 0 || engines_open(&config, &site[i].engines) < 0 ||
                    site[i].engines.host == NULL)
                        fail(strerror(errno));
                site[i].engine = site[i].engines.host;
                site[i].engine->events = &events;
                site[i].engine->owner = &site[i];
                site[i].engine->ops->share(site[i].engine, 1, &memory);
                close(fd);
        }
}

static double form(void) {
        uint64_t begin = clock_now();
        uint32_t node[MOST];

        for (uint32_t i = 0; i < n_sites; i++)
                node[i] = i;
        for (uint32_t i = 0; i < n_sites; i++) {
                struct engine_build build = { .comm = 1,
                                              .name = "bench",
                                              .n_lanes = LANES,
                                              .n_nodes = n_sites,
                                              .self = i,
                                              .node = node };

                if (site[i].engine->ops->build(site[i].engine, &build) < 0)
                        fail("a helper cannot be started");
        }
        for (uint32_t i = 0; i < n_sites; i++)
                while (site[i].built == 0)
                        pass();
        return (double)(clock_now() - begin) / 1e3;
}

static double collective(uint64_t sequence, uint64_t elements) {
        struct engine_launch launch = { .comm = 1,
                                        .sequence = sequence,
                                        .kind = elements > 0 ? ENGINE_PAYLOAD : ENGINE_VOTE };
        uint64_t begin = clock_now();

        if (elements > 0)
                launch.piece = (struct engine_piece){
                        .memory = 1, .elements = elements, .dtype = WIRE__DTYPE__F32, .reduce = ENGINE_SUM
                };
        for (uint32_t i = 0; i < n_sites; i++)
                site[i].engine->ops->launch(site[i].engine, &launch);
        for (uint32_t i = 0; i < n_sites; i++)
                while (site[i].done < sequence)
                        pass();
        return (double)(clock_now() - begin) / 1e3;
}

static int ascending(const void *a, const void *b) {
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double median(uint64_t *sequence, uint64_t elements) {
        double took[ROUNDS];

        for (unsigned i = 0; i < ROUNDS; i++)
                took[i] = collective(++*sequence, elements);
        qsort(took, ROUNDS, sizeof(*took), ascending);
        return took[ROUNDS / 2];
}

static unsigned entries(int pid, const char *what) {
        char path[64];
        unsigned n = 0;

        snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
        DIR *dir = opendir(path);
        for (struct dirent *entry = dir != NULL ? readdir(dir) : NULL; entry != NULL; entry = readdir(dir))
                n += entry->d_name[0] != '.';
        if (dir != NULL)
                closedir(dir);
        return n;
}

/* Describes the first helper: all helpers are alike. */
static void describe_helper(void) {
        char path[64], line[256];
        int pid = 0;
        long kib = 0;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "re");
        if (file == NULL || fscanf(file, "%d", &pid) != 1)
                fail("there is no helper");
        fclose(file);
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        file = fopen(path, "re");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL)
                sscanf(line, "VmRSS: %ld", &kib);
        if (file != NULL)
                fclose(file);
        printf(" %11u %7u %9.1f", entries(pid, "fd"), entries(pid, "task"), (double)kib / 1024);
}

static void measure(const char *helper, uint32_t n) {
        uint64_t sequence = 0;

        n_sites = n;
        open_all(helper);
        printf("%5u %10.0f", n, form());
        describe_helper();
        double vote = median(&sequence, 0), payload = median(&sequence, BYTES / 4);
        printf(" %13.2f %12.1f\n", vote, payload);
        fflush(stdout);
        for (uint32_t i = 0; i < n; i++) {
                site[i].engine->ops->drop(site[i].engine, 1);
                site[i].engine->ops->unshare(site[i].engine, 1);
                engines_close(&site[i].engines);
        }
}

int main(int argc, char **argv) {
        if (argc < 3)
                fail("usage: gloo_nodes HELPER NODES...");
        printf("nodes    form ms descriptors threads       MiB comparison ms allreduce ms\n");
        for (int i = 2; i < argc; i++) {
                unsigned long n = strtoul(argv[i], NULL, 10);

                if (n < 2 || n > MOST)
                        fail("a communicator has 2 to 64 nodes");
                measure(argv[1], (uint32_t)n);
        }
        return EXIT_SUCCESS;
}
