/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of one communicator in one process: an engine each, by its table of functions. The other nodes learn
 * what a node publishes, unless the test keeps it back. A header of an engine includes this one, says how
 * many sites and lanes there are, and opens and closes the sites.
 */
#pragma once

#include "captured_stderr.h"
#include "tests.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine.h"
#include "gradsync.pb-c.h"

#define COMM 11u
#define OTHER 1000u /* another one, of another job */
#define MEMORY 7u
#define FOREVER 60000 /* ms: then the test has failed */

/* Prints to stdout, because a test may capture stderr. */
#define FAIL(...)                                                                                            \
        do {                                                                                                 \
                print_message(__VA_ARGS__);                                                                  \
                print_message("\n");                                                                         \
                fail();                                                                                      \
        } while (0)

struct rig;

struct site {
        struct rig *rig;
        struct engine *engine;
        unsigned char *bytes; /* that the test reads and writes: its memory, or, of a GPU, pinned memory */
        struct site_own own;  /* of the header of its engine */
        bool keeps_back;      /* the other sites do not learn what it publishes until rig_spread() */
        bool is_out;          /* of the communicators that are made from now on */
        unsigned char *table;
        size_t table_bytes;
        unsigned n_built, n_aborted, n_unreachable, n_shared, n_unshared;
        uint32_t lost[SITES], n_lost; /* of the last built(), or unreachable() */
        uint64_t done[LANES], value[LANES][ENGINE_VALUES];
        unsigned other_built, other_aborted;
        unsigned n_done_before; /* of the one before */
};

struct rig {
        struct site site[SITES];
        struct rig_own own;
        uint32_t n, n_absent; /* sites; nodes after them that no site plays */
        uint32_t n_lanes;
        uint64_t comm, older; /* older: 0, or the one before, which is still there */
        bool is_built;        /* and not dropped since */
};

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

static inline bool site_has_lost(const struct site *site, uint32_t rank) {
        return site->n_lost == 1 && site->lost[0] == rig_address(rank);
}

static inline void assert_lost(const struct site *site, uint32_t rank) {
        assert_true(site_has_lost(site, rank));
}

/* ---- what comes of an engine ---- */

/* Passes a table of this site on to all others. */
static void site_spread(const struct site *site, uint64_t comm, const void *table, size_t bytes) {
        EACH_SITE(site->rig, other)
        if (other != site)
                assert_int_equal(other->engine->ops->learn(other->engine, comm, site_rank(site), table,
                                                           bytes),
                                 0);
}

/* Passes on the table that this site has published. */
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

/* ---- all of them ---- */

static void rig_end(struct rig *rig); /* of the header of its engine */

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

static void site_build_one(struct site *site, uint64_t comm, const char *name) {
        struct rig *rig = site->rig;
        uint32_t n = 0, address[SITES];

        EACH_SITE(rig, other)
        address[n++] = rig_address((uint32_t)(other - rig->site));
        for (uint32_t i = 0; i < rig->n_absent; i++)
                address[n++] = rig_address(rig->n + i);
        struct engine_build build = { .comm = comm,
                                      .name = name,
                                      .n_lanes = rig->n_lanes,
                                      .n_nodes = n,
                                      .self = site_rank(site),
                                      .node = address,
                                      .older = comm == OTHER ? 0 : rig->older };

        assert_int_equal(site->engine->ops->build(site->engine, &build), 0);
}

static void rig_build(struct rig *rig) {
        char name[64];

        snprintf(name, sizeof(name), "0/training/1.%u.1.1", (unsigned)rig->comm);
        EACH_SITE(rig, site) {
                free(site->table);
                site->table = NULL;
                site->n_built = site->n_aborted = site->n_unreachable = 0;
                memset(site->done, 0, sizeof(site->done));
        }
        rig->is_built = true;
        EACH_SITE(rig, site)
        site_build_one(site, rig->comm, name);
}

static inline void rig_await_built(struct rig *rig) {
        EACH_SITE(rig, site)
        UNTIL(rig, site->n_built > 0);
}

/* All reach all. */
static inline void rig_await_made(struct rig *rig) {
        rig_await_built(rig);
        EACH_SITE(rig, site)
        assert_int_equal(site->n_lost, 0);
}

static inline void rig_abort(struct rig *rig) {
        EACH_SITE(rig, site)
        site->engine->ops->abort(site->engine, rig->comm);
        EACH_SITE(rig, site)
        UNTIL(rig, site->n_aborted > 0);
}

static inline void rig_drop(struct rig *rig) {
        rig->is_built = false;
        EACH_SITE(rig, site)
        if (site->n_aborted == 0)
                site->engine->ops->drop(site->engine, rig->comm);
}

static int site_try(struct site *site, uint32_t lane, uint64_t sequence, enum engine_kind kind,
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

static void site_launch(struct site *site, uint32_t lane, uint64_t sequence, enum engine_kind kind,
                        const struct engine_piece *piece) {
        assert_int_equal(site_try(site, lane, sequence, kind, piece), 0);
}

static void rig_launch(struct rig *rig, uint32_t lane, uint64_t sequence, const struct engine_piece *piece) {
        EACH_SITE(rig, site)
        site_launch(site, lane, sequence, piece != NULL ? ENGINE_PAYLOAD : ENGINE_VOTE, piece);
}

static void rig_await(struct rig *rig, uint32_t lane, uint64_t sequence) {
        EACH_SITE(rig, site)
        UNTIL(rig, site->done[lane] >= sequence);
}

/* Runs two votes. In the first one the smallest of each value comes out; in the second one a node has a
 * filler, and zeros come out. */
static inline void vote_and_fill(struct rig *rig, uint32_t lane) {
        rig_launch(rig, lane, 1, NULL);
        rig_await(rig, lane, 1);
        EACH_SITE(rig, site)
        for (unsigned i = 0; i < ENGINE_VALUES; i++)
                assert_int_equal(site->value[lane][i], 100 * (i + 1) - (i % 2 ? rig->n - 1 : 0));
        EACH_SITE(rig, site)
        site_launch(site, lane, 2, site == &rig->site[1] ? ENGINE_FILLER : ENGINE_VOTE, NULL);
        rig_await(rig, lane, 2);
        EACH_SITE(rig, site)
        for (unsigned i = 0; i < ENGINE_VALUES; i++)
                assert_int_equal(site->value[lane][i], 0);
}

/* ---- tests ---- */

/* Runs a test, then ends the sites, whatever their state, and checks that nothing of them is left. */
static inline void rig_run(void (*test)(struct rig *rig)) {
        static struct rig rig;

        memset(&rig, 0, sizeof(rig));
        test(&rig);
        rig_end(&rig);
}

/* For tests.h: a test that opens a rig, or none. */
#define RIG_TEST(name, before, after)                                                                        \
        static void name(struct rig *rig);                                                                   \
        TEST_LIST(name, rig_run(name), before, after)                                                        \
        static void name(struct rig *rig)
