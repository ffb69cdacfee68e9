/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of one communicator in one process: an engine each, with a fake GPU of its own, over the fake NCCL.
 * What a node publishes the others learn, unless the test keeps it back.
 */
#pragma once

#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/nccl/nccl.h"
#include "engine/nccl/table.h"
#include "gradsync.pb-c.h"
#include "proto/cuda.h"
#include "proto/names.h"

#define SITES 4u
#define LANES 2u
#define COMM 11u
#define OTHER 1000u /* another one, of another job */
#define MEMORY 7u
#define MEMORY_BYTES (4u << 20)
#define FOREVER 60000 /* ms: then the test has failed */
#define LONG_AGO 20000u

struct rig;

struct site {
        struct rig *rig;
        struct engine *engine;
        cuda_context context;
        cuda_address memory;
        unsigned char *tail; /* pinned */
        bool keeps_back;     /* nobody learns what it publishes until rig_spread() */
        unsigned char *table;
        size_t table_bytes;
        unsigned n_built, n_aborted, n_unreachable, n_failed;
        uint32_t lost[SITES], n_lost; /* of the last built(), or unreachable() */
        uint64_t done[LANES], value[LANES][ENGINE_VALUES];
        char failed[512];
        uint32_t gpu;
        unsigned n_shared, n_unshared;
        unsigned other_built, other_aborted;
        bool is_out;            /* of the communicators that are made from now on */
        unsigned n_done_before; /* of the one before */
};

struct rig {
        struct site site[SITES];
        uint32_t n, address[SITES];
        uint64_t comm, older; /* older: 0, or the one before, which is still there */
        uint32_t dialect;
        struct nccl_engine_config config;
};

static struct cuda driver; /* the tests' own view of the GPUs, in the same process */
static char folder[64], error[512];

/* What the fake is to do wrong from now on. The variables are there from the beginning: other threads read
 * them meanwhile. */
static inline void set_trouble(const char *fail, const char *stuck) {
        setenv("FAKE_NCCL_FAIL", fail, 1);
        setenv("FAKE_NCCL_STUCK", stuck, 1);
}

/* Not its rank. */
static uint32_t rig_address(uint32_t rank) {
        return 10 * rank + 3;
}

#define EACH_SITE(rig, each)                                                                                 \
        for (struct site *each = (rig)->site; each < (rig)->site + (rig)->n; each++)                         \
                if (!each->is_out)

static uint32_t site_rank(const struct site *site) {
        uint32_t rank = 0;

        EACH_SITE(site->rig, other)
        rank += other < site;
        return rank;
}

/* ---- what comes of an engine ---- */

/* To all others. */
static void site_spread(const struct site *site, uint64_t comm, const void *table, size_t bytes) {
        EACH_SITE(site->rig, other)
        if (other != site)
                assert_int_equal(other->engine->ops->learn(other->engine, comm, site_rank(site), table,
                                                           bytes),
                                 0);
}

/* What this one has published. */
static void rig_spread(struct site *site) {
        site_spread(site, site->rig->comm, site->table, site->table_bytes);
}

static void site_on_publish(void *owner, uint64_t comm, const void *table, size_t bytes) {
        struct site *site = owner;

        if (comm == OTHER) {
                site_spread(site, OTHER, table, bytes);
                return;
        }
        assert_int_equal(comm, site->rig->comm);
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

        if (comm == OTHER) {
                assert_int_equal(n, 0);
                site->other_built++;
                return;
        }
        assert_int_equal(comm, site->rig->comm);
        site->n_built++;
        site_note_lost(site, unreachable, n);
}

static void site_on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence,
                         const uint64_t *value) {
        struct site *site = owner;

        if (comm == site->rig->older && comm != site->rig->comm) {
                site->n_done_before++;
                return;
        }
        assert_int_equal(comm, site->rig->comm);
        assert_int_equal(sequence, site->done[lane] + 1);
        site->done[lane] = sequence;
        memcpy(site->value[lane], value, sizeof(site->value[lane]));
}

static void site_on_unreachable(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n) {
        struct site *site = owner;

        assert_int_equal(comm, site->rig->comm);
        site->n_unreachable++;
        site_note_lost(site, nodes, n);
}

static void site_on_aborted(void *owner, uint64_t comm) {
        struct site *site = owner;

        if (comm == OTHER) {
                site->other_aborted++;
                return;
        }
        assert_int_equal(comm, site->rig->comm);
        site->n_aborted++;
}

static void site_on_shared(void *owner, uint64_t memory) {
        struct site *site = owner;

        site->n_shared++;
}

static void site_on_unshared(void *owner, uint64_t memory) {
        struct site *site = owner;

        site->n_unshared++;
}

static const struct engine_events site_events = {
        .publish = site_on_publish,
        .built = site_on_built,
        .done = site_on_done,
        .unreachable = site_on_unreachable,
        .aborted = site_on_aborted,
        .shared = site_on_shared,
        .unshared = site_on_unshared,
};

static void site_on_failed(void *owner, const char *why) {
        struct site *site = owner;

        site->n_failed++;
        snprintf(site->failed, sizeof(site->failed), "%s", why);
}

/* ---- all of them ---- */

static inline bool rig_pass(struct rig *rig, const char *what) {
        struct pollfd fds[SITES];

        for (uint32_t i = 0; i < rig->n; i++)
                fds[i] = (struct pollfd){ .fd = rig->site[i].engine->ops->fd(rig->site[i].engine),
                                          .events = POLLIN };
        if (poll(fds, rig->n, FOREVER) <= 0)
                fail_msg("nothing comes of %s", what);
        for (uint32_t i = 0; i < rig->n; i++)
                if (fds[i].revents != 0)
                        rig->site[i].engine->ops->dispatch(rig->site[i].engine);
        return true;
}

#define UNTIL(rig, condition)                                                                                \
        while (!(condition))                                                                                 \
        rig_pass(rig, #condition)

static void uuid_of(uint32_t number, char text[CUDA_UUID_TEXT]) {
        struct cuda_uuid uuid;
        cuda_device device;

        assert_int_equal(driver.device_get(&device, (int)number), CUDA_OK);
        assert_int_equal(driver.device_uuid(&uuid, device), CUDA_OK);
        cuda_uuid_text(&uuid, text);
}

static inline void site_enter(const struct site *site) {
        assert_int_equal(driver.context_set(site->context), CUDA_OK);
}

static void site_open(struct rig *rig, uint32_t rank, uint32_t gpu) {
        struct nccl_engine_config config = rig->config;
        struct site *site = &rig->site[rank];
        char uuid[CUDA_UUID_TEXT];
        void *pinned;

        site->rig = rig;
        site->gpu = gpu;
        uuid_of(gpu, uuid);
        config.uuid = uuid;
        config.failed = site_on_failed;
        config.owner = site;
        if (nccl_open(&config, &site->engine, error, sizeof(error)) != 0)
                fail_msg("%s", error);
        site->engine->events = &site_events;
        site->engine->owner = site;
        assert_int_equal(driver.primary_retain(&site->context, (cuda_device)gpu), CUDA_OK);
        site_enter(site);
        assert_int_equal(driver.allocate(&site->memory, MEMORY_BYTES), CUDA_OK);
        assert_int_equal(driver.host_alloc(&pinned, 4096, CUDA_HOST_DEVICEMAP), CUDA_OK);
        site->tail = pinned;
        struct engine_memory memory = { .address = (void *)(uintptr_t)site->memory,
                                        .fd = -1,
                                        .bytes = MEMORY_BYTES };
        assert_int_equal(site->engine->ops->share(site->engine, MEMORY, &memory), 0);
        rig->address[rank] = rig_address(rank);
}

static inline void rig_configure(struct rig *rig, uint32_t n) {
        memset(rig, 0, sizeof(*rig));
        rig->n = n;
        rig->comm = COMM;
        rig->dialect = TABLE_WINDOWS;
        rig->config = (struct nccl_engine_config){ .host = "here",
                                                   .log = -1,
                                                   .driver = FAKE_GPU_LIBRARY,
                                                   .library = FAKE_NCCL_LIBRARY,
                                                   .timeout = LONG_AGO,
                                                   .exchange = LONG_AGO,
                                                   .ending = LONG_AGO };
}

/* Rank n is on GPU n. */
static inline void rig_begin(struct rig *rig) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_open(rig, rank, rank);
}

static inline void rig_open(struct rig *rig, uint32_t n) {
        rig_configure(rig, n);
        rig_begin(rig);
}

static inline void site_build_one(struct site *site, uint64_t comm, const char *name) {
        struct rig *rig = site->rig;
        uint32_t n = 0, address[SITES];

        EACH_SITE(rig, other)
        address[n++] = rig->address[other - rig->site];
        struct engine_build build = { .comm = comm,
                                      .name = name,
                                      .n_lanes = LANES,
                                      .dialect = rig->dialect,
                                      .n_nodes = n,
                                      .self = site_rank(site),
                                      .node = address,
                                      .older = comm == OTHER ? 0 : rig->older };

        assert_int_equal(site->engine->ops->build(site->engine, &build), 0);
}

static inline void site_build(struct site *site) {
        char name[64];

        snprintf(name, sizeof(name), "0/training/1.%u.1.1", (unsigned)site->rig->comm);
        site_build_one(site, site->rig->comm, name);
}

static inline void rig_build(struct rig *rig) {
        EACH_SITE(rig, site) {
                free(site->table);
                site->table = NULL;
                site->n_built = site->n_aborted = site->n_unreachable = 0;
                memset(site->done, 0, sizeof(site->done));
        }
        EACH_SITE(rig, site)
        site_build(site);
}

static inline void rig_await_built(struct rig *rig) {
        EACH_SITE(rig, site)
        UNTIL(rig, site->n_built > 0);
}

static inline void rig_form(struct rig *rig, uint32_t n) {
        rig_open(rig, n);
        rig_build(rig);
        rig_await_built(rig);
        for (uint32_t rank = 0; rank < n; rank++)
                assert_int_equal(rig->site[rank].n_lost, 0);
}

static inline void rig_abort(struct rig *rig) {
        EACH_SITE(rig, site)
        site->engine->ops->abort(site->engine, rig->comm);
        EACH_SITE(rig, site)
        UNTIL(rig, site->n_aborted > 0);
}

static inline void rig_drop(struct rig *rig) {
        EACH_SITE(rig, site)
        site->engine->ops->drop(site->engine, rig->comm);
}

static inline void site_unshare(struct site *site, uint64_t memory) {
        unsigned before = site->n_unshared;

        if (!site->engine->ops->unshare(site->engine, memory))
                UNTIL(site->rig, site->n_unshared > before);
}

static inline void site_close(struct site *site) {
        nccl_close(site->engine);
        site_enter(site);
        assert_int_equal(driver.free(site->memory), CUDA_OK);
        assert_int_equal(driver.host_free(site->tail), CUDA_OK);
        assert_int_equal(driver.primary_release((cuda_device)site->gpu), CUDA_OK);
        free(site->table);
        assert_int_equal(site->n_failed, 0);
}

/* Nothing is left on any GPU. */
static inline void rig_close(struct rig *rig) {
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_unshare(&rig->site[rank], MEMORY);
        for (uint32_t rank = 0; rank < rig->n; rank++)
                site_close(&rig->site[rank]);
}

static inline int site_try(struct site *site, uint32_t lane, uint64_t sequence, enum engine_kind kind,
                           const struct engine_piece *piece) {
        struct engine_launch launch = {
                .comm = site->rig->comm, .lane = lane, .sequence = sequence, .kind = kind
        };

        if (piece != NULL)
                launch.piece = *piece;
        for (unsigned i = 0; i < ENGINE_VALUES; i++)
                launch.value[i] = 100 * (i + 1) + (uint64_t)((site - site->rig->site) * (i % 2 ? -1 : 1));
        return site->engine->ops->launch(site->engine, &launch);
}

static inline void site_launch(struct site *site, uint32_t lane, uint64_t sequence, enum engine_kind kind,
                               const struct engine_piece *piece) {
        assert_int_equal(site_try(site, lane, sequence, kind, piece), 0);
}

static inline void rig_launch(struct rig *rig, uint32_t lane, uint64_t sequence,
                              const struct engine_piece *piece) {
        EACH_SITE(rig, site)
        site_launch(site, lane, sequence, piece != NULL ? ENGINE_PAYLOAD : ENGINE_VOTE, piece);
}

static inline void rig_await(struct rig *rig, uint32_t lane, uint64_t sequence) {
        EACH_SITE(rig, site)
        UNTIL(rig, site->done[lane] >= sequence);
}

static inline void site_put(const struct site *site, uint64_t offset, const void *from, size_t bytes) {
        site_enter(site);
        assert_int_equal(driver.copy_in(site->memory + offset, from, bytes, NULL), CUDA_OK);
        assert_int_equal(driver.stream_wait(NULL), CUDA_OK);
}

static inline void site_get(const struct site *site, uint64_t offset, void *to, size_t bytes) {
        site_enter(site);
        assert_int_equal(driver.copy_out(to, site->memory + offset, bytes, NULL), CUDA_OK);
}

static inline void rig_finish(struct rig *rig) {
        set_trouble("", "");
        rig_drop(rig);
        rig_close(rig);
}

/* ---- the machine ---- */

static inline int nccl_setup(void **state) {
        snprintf(folder, sizeof(folder), "/tmp/fake-nccl.XXXXXX");
        if (mkdtemp(folder) == NULL)
                return -1;
        setenv("FAKE_GPU", folder, 1);
        setenv("FAKE_GPU_KERNELS", FAKE_GPU_KERNELS_LIBRARY, 1);
        setenv("FAKE_GPU_DEVICES", "4", 1);
        set_trouble("", "");
        if (cuda_load(&driver, FAKE_GPU_LIBRARY, error, sizeof(error)) == 0)
                return 0;
        fprintf(stderr, "%s\n", error);
        return -1;
}

/* Whether no rule was broken, and nothing is left. Not as a teardown: nobody would hear of its failure. */
static inline bool nccl_check(void) {
        char command[512];
        int status;

        snprintf(command, sizeof(command), "%s check > /dev/null", FAKE_GPU_CONTEXT);
        for (unsigned i = 0; (status = system(command)) != 0 && i < 3000; i++)
                usleep(10000);
        snprintf(command, sizeof(command),
                 "cat %s/log >&2 2> /dev/null; test ! -s %s/log; r=$?; rm -r %s; exit $r", folder, folder,
                 folder);
        return system(command) == 0 && status == 0;
}

/* What main() returns. With an argument only the tests of that name run: `test_nccl 'what_*'`. */
#define NCCL_RUN(argv, tests, setup, teardown)                                                               \
        (cmocka_set_test_filter((argv)[1]),                                                                  \
         cmocka_run_group_tests(tests, setup, teardown) != 0 || !nccl_check())
