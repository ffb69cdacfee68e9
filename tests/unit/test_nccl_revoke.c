/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator that worked is aborted: where NCCL can, it is revoked first, and freed later. */
#include "nccl_fixture.h"

#include <pthread.h>

#include "base/clock.h"

#define A_WHILE 500 /* ms */
#define PIECE_BYTES 65536u

/* Whether communicators that end stay as they are. */
static void set_keep(bool on) {
        gpu_order("nccl-keep", on);
}

/* All of them but the last one launch a piece on each lane, which waits for the last one. */
static void wait_in_vain(struct rig *rig) {
        struct engine_piece piece = { .memory = MEMORY,
                                      .elements = PIECE_BYTES / sizeof(int32_t),
                                      .dtype = WIRE__DTYPE__I32,
                                      .reduce = ENGINE_SUM };

        for (uint32_t lane = 0; lane < LANES; lane++, piece.input = piece.output = PIECE_BYTES)
                for (uint32_t rank = 0; rank + 1 < rig->n; rank++)
                        site_launch(&rig->site[rank], lane, 1, ENGINE_PAYLOAD, &piece);
}

static void vote(struct rig *rig) {
        rig_launch(rig, 0, 1, NULL);
        rig_await(rig, 0, 1);
        EACH_SITE(rig, site)
        assert_int_equal(site->value[0][0], 100);
}

static void write_everywhere(struct rig *rig, unsigned char what) {
        unsigned char bytes[2 * PIECE_BYTES];

        memset(bytes, what, sizeof(bytes));
        EACH_SITE(rig, site)
        site_put(site, 0, bytes, sizeof(bytes));
}

static void assert_everywhere(struct rig *rig, unsigned char what) {
        unsigned char bytes[2 * PIECE_BYTES];

        EACH_SITE(rig, site) {
                site_get(site, 0, bytes, sizeof(bytes));
                for (size_t i = 0; i < sizeof(bytes); i++)
                        assert_int_equal(bytes[i], what);
        }
}

/* Gives them time to do what they are not to do: a while, and several times as long as it took before. */
static void pass_a_while(struct rig *rig, uint64_t took) {
        for (uint64_t end = clock_now() + A_WHILE * USEC_PER_MSEC + 4 * took; clock_now() < end;
             usleep(1000)) {
                EACH_SITE(rig, site)
                site->engine->ops->dispatch(site->engine);
        }
}

/* It is told as soon as no kernel runs, memory is the owner's again, and the next one works only when all of
 * it has gone. */
TEST(it_is_quiet_before_it_is_freed) {
        uint64_t begin = clock_now();
        rig_form(rig, 3);
        uint64_t took = clock_now() - begin;
        wait_in_vain(rig);
        set_keep(true);
        rig_abort(rig);
        write_everywhere(rig, 7);
        rig_build(rig);
        pass_a_while(rig, took);
        unsigned built = 0;
        EACH_SITE(rig, site)
        built += site->n_built;
        set_keep(false); /* for the next test, too */
        assert_int_equal(built, 0);
        rig_await_built(rig);
        assert_everywhere(rig, 7);
        vote(rig);
        EACH_SITE(rig, site)
        assert_int_equal(site->n_aborted, 0); /* not of the first one once more */
}

static void *keep_for_a_while(void *data) {
        usleep(A_WHILE * 1000);
        set_keep(false);
        return NULL;
}

/* The daemon ends meanwhile: its engine closes when all has gone. */
TEST(it_is_freed_before_the_engine_closes) {
        pthread_t thread;

        rig_form(rig, 2);
        EACH_SITE(rig, site)
        site_unshare(site, MEMORY);
        site_launch(&rig->site[0], 0, 1, ENGINE_VOTE, NULL);
        set_keep(true);
        rig_abort(rig);
        assert_int_equal(pthread_create(&thread, NULL, keep_for_a_while, NULL), 0);
        EACH_SITE(rig, site)
        site_close(site);
        pthread_join(thread, NULL);
        rig->n = 0;
}

static void end_with(struct rig *rig, const char *library, const char *fail, const char *stuck,
                     uint32_t ending) {
        rig_configure(rig, 2);
        rig->own.config.library = library;
        rig->own.config.ending = ending;
        rig_begin(rig);
        rig_build(rig);
        rig_await_built(rig);
        wait_in_vain(rig);
        set_trouble(fail, stuck);
        rig_abort(rig);
        set_trouble("", "");
        rig_build(rig);
        rig_await_built(rig);
        vote(rig);
}

/* NCCL fails, or does not come to an end, or knows nothing of it: there is the other way. */
TEST(where_it_fails_it_is_aborted) {
        end_with(rig, FAKE_NCCL_LIBRARY, "ncclCommRevoke:0:3", "", LONG_AGO);
}

TEST(where_it_sticks_it_is_aborted) {
        end_with(rig, FAKE_NCCL_LIBRARY, "", "revoke", 4000);
}

TEST(where_it_cannot_it_is_aborted) {
        end_with(rig, FAKE_NCCL_PLAIN, "", "", LONG_AGO);
}
