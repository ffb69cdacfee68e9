/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of one communicator in one process: an engine each, by its table of functions, with a real helper
 * process of Gloo and memory of its own. What a node publishes the others learn, unless the test keeps it
 * back.
 */
#pragma once

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "captured_stderr.h"
#include "engine/engines.h"
#include "gradsync.pb-c.h"

#define SITES 5u
#define LANES 4u
#define STREAMS 2u /* of a lane: ports that a node listens on, while they are few */
#define COMM 11u
#define MEMORY 7u
#define MEMORY_BYTES (16u << 20)
#define PATIENT 30000u /* ms: a silence that no busy machine makes */
#define SWIFT 750u
#define FOREVER 20000 /* ms: then the test has failed */

/* Where it is read: stderr is the test's. */
#define FAIL(...)                                                                                            \
        do {                                                                                                 \
                print_message(__VA_ARGS__);                                                                  \
                print_message("\n");                                                                         \
                fail();                                                                                      \
        } while (0)

struct rig;

struct site {
        struct rig *rig;
        struct engines engines;
        struct engine *engine;
        int memory;
        unsigned char *bytes;
        bool keeps_back; /* nobody learns what it publishes until rig_spread() */
        unsigned char *table;
        size_t table_bytes;
        unsigned n_built, n_aborted, n_unreachable;
        uint32_t lost[SITES], n_lost; /* of the last built(), or unreachable() */
        uint64_t done[LANES], value[LANES][ENGINE_VALUES];
};

static const char *rig_helper = HELPER;

struct rig {
        struct site site[SITES];
        uint32_t n, address[SITES];
        int n_fds; /* before */
};

/* Not its rank. */
static uint32_t rig_address(uint32_t rank) {
        return 10 * rank + 3;
}

static int count_fds(void) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;

        while (readdir(dir) != NULL)
                n++;
        closedir(dir);
        return n;
}

/* The helpers, in the order of the ranks. */
static inline unsigned children(pid_t *ret, unsigned most) {
        char path[64], pid[32];
        unsigned n = 0;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        while (n < most && fscanf(file, "%31s", pid) == 1)
                ret[n++] = atoi(pid);
        fclose(file);
        return n;
}

/* ---- what comes of an engine ---- */

static void site_teach(struct site *from, uint32_t to) {
        struct rig *rig = from->rig;
        struct engine *engine = rig->site[to].engine;

        assert_int_equal(engine->ops->learn(engine, COMM, (uint32_t)(from - rig->site), from->table,
                                            from->table_bytes),
                         0);
}

/* To all others what this one has published. */
static void rig_spread(struct site *site) {
        for (uint32_t i = 0; i < site->rig->n; i++)
                if (&site->rig->site[i] != site)
                        site_teach(site, i);
}

static void site_on_publish(void *owner, uint64_t comm, const void *table, size_t bytes) {
        struct site *site = owner;

        assert_int_equal(comm, COMM);
        assert_null(site->table);
        site->table = malloc(bytes);
        memcpy(site->table, table, bytes);
        site->table_bytes = bytes;
        if (!site->keeps_back)
                rig_spread(site);
}

static void site_note_lost(struct site *site, const uint32_t *nodes, uint32_t n) {
        site->n_lost = n;
        for (uint32_t i = 0; i < n; i++)
                site->lost[i] = nodes[i];
}

static void site_on_built(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n) {
        struct site *site = owner;

        assert_int_equal(comm, COMM);
        site->n_built++;
        site_note_lost(site, unreachable, n);
}

static void site_on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence,
                         const uint64_t *value) {
        struct site *site = owner;

        assert_int_equal(comm, COMM);
        assert_int_equal(sequence, site->done[lane] + 1);
        site->done[lane] = sequence;
        memcpy(site->value[lane], value, sizeof(site->value[lane]));
}

static void site_on_unreachable(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n) {
        struct site *site = owner;

        assert_int_equal(comm, COMM);
        site->n_unreachable++;
        site_note_lost(site, nodes, n);
}

static void site_on_aborted(void *owner, uint64_t comm) {
        struct site *site = owner;

        assert_int_equal(comm, COMM);
        site->n_aborted++;
}

static const struct engine_events site_events = {
        .publish = site_on_publish,
        .built = site_on_built,
        .done = site_on_done,
        .unreachable = site_on_unreachable,
        .aborted = site_on_aborted,
};

/* ---- all of them ---- */

static void rig_pass(struct rig *rig, const char *what) {
        struct pollfd fds[SITES];

        for (uint32_t i = 0; i < rig->n; i++)
                fds[i] = (struct pollfd){ .fd = rig->site[i].engine->ops->fd(rig->site[i].engine),
                                          .events = POLLIN };
        if (poll(fds, rig->n, FOREVER) <= 0)
                FAIL("nothing comes of %s; the log since it was read last: %s", what, written());
        for (uint32_t i = 0; i < rig->n; i++)
                if (fds[i].revents != 0)
                        rig->site[i].engine->ops->dispatch(rig->site[i].engine);
}

#define UNTIL(rig, condition)                                                                                \
        while (!(condition))                                                                                 \
        rig_pass(rig, #condition)

static void site_open(struct rig *rig, uint32_t rank, uint32_t silence) {
        struct engines_config config = { .gloo_helper = rig_helper, .silence = silence };
        struct site *site = &rig->site[rank];

        site->rig = rig;
        assert_int_equal(engines_open(&config, &site->engines), 0);
        site->engine = site->engines.engine;
        assert_non_null(site->engine);
        site->engine->events = &site_events;
        site->engine->owner = site;
        site->memory = memfd_create("site", MFD_CLOEXEC);
        assert_true(site->memory >= 0);
        assert_int_equal(ftruncate(site->memory, MEMORY_BYTES), 0);
        site->bytes = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, site->memory, 0);
        assert_true(site->bytes != MAP_FAILED);
        struct engine_memory memory = { site->bytes, true, site->memory, MEMORY_BYTES };
        assert_int_equal(site->engine->ops->share(site->engine, MEMORY, &memory), 0);
}

static void rig_open(struct rig *rig, uint32_t n, uint32_t silence) {
        memset(rig, 0, sizeof(*rig));
        rig->n_fds = count_fds();
        rig->n = n;
        for (uint32_t rank = 0; rank < SITES; rank++)
                rig->address[rank] = rig_address(rank);
        for (uint32_t rank = 0; rank < n; rank++)
                site_open(rig, rank, silence);
}

static void site_build(struct site *site, uint32_t n_nodes, uint32_t n_lanes) {
        struct engine_build build = { .comm = COMM,
                                      .name = "0/training/1.1.1.1",
                                      .n_lanes = n_lanes,
                                      .dialect = site->engine->ops->dialect,
                                      .n_nodes = n_nodes,
                                      .self = (uint32_t)(site - site->rig->site),
                                      .node = site->rig->address };

        assert_int_equal(site->engine->ops->build(site->engine, &build), 0);
}

static void rig_build(struct rig *rig, uint32_t n_lanes) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_build(&rig->site[rank], rig->n, n_lanes);
}

/* All reach all. */
static inline void rig_form(struct rig *rig, uint32_t n, uint32_t n_lanes) {
        rig_open(rig, n, PATIENT);
        rig_build(rig, n_lanes);
        for (uint32_t rank = 0; rank < n; rank++) {
                UNTIL(rig, rig->site[rank].n_built > 0);
                assert_int_equal(rig->site[rank].n_lost, 0);
        }
}

/* Whatever became of them, nothing is left: no process, no descriptor. */
static void rig_close(struct rig *rig, bool working) {
        pid_t left;

        for (uint32_t rank = 0; rank < rig->n; rank++) {
                struct site *site = &rig->site[rank];
                struct engine *engine = site->engine;

                if (working)
                        engine->ops->drop(engine, COMM);
                else {
                        engine->ops->abort(engine, COMM);
                        UNTIL(rig, site->n_aborted > 0);
                }
                engine->ops->unshare(engine, MEMORY);
                munmap(site->bytes, MEMORY_BYTES);
                close(site->memory);
                free(site->table);
        }
        for (uint32_t rank = 0; rank < rig->n; rank++)
                engines_close(&rig->site[rank].engines);
        assert_int_equal(waitpid(-1, &(int){ 0 }, WNOHANG), -1);
        assert_int_equal(errno, ECHILD);
        assert_int_equal(children(&left, 1), 0);
        assert_int_equal(count_fds(), rig->n_fds);
}

static void site_launch(struct site *site, uint32_t lane, uint64_t sequence, enum engine_kind kind,
                        const struct engine_piece *piece) {
        struct engine_launch launch = { .comm = COMM, .lane = lane, .sequence = sequence, .kind = kind };

        if (piece != NULL)
                launch.piece = *piece;
        for (unsigned i = 0; i < ENGINE_VALUES; i++)
                launch.value[i] = 100 * (i + 1) + (uint64_t)((site - site->rig->site) * (i % 2 ? -1 : 1));
        assert_int_equal(site->engine->ops->launch(site->engine, &launch), 0);
}

static inline void rig_launch(struct rig *rig, uint32_t lane, uint64_t sequence,
                              const struct engine_piece *piece) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_launch(&rig->site[rank], lane, sequence, piece != NULL ? ENGINE_PAYLOAD : ENGINE_VOTE,
                            piece);
}

static inline void rig_await(struct rig *rig, uint32_t lane, uint64_t sequence) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                UNTIL(rig, rig->site[rank].done[lane] >= sequence);
}
