/* SPDX-License-Identifier: Apache-2.0 */
/* The ways in which a communicator follows another one of its job. Calls that must not be made fail. */
#include "nccl_fixture.h"

#define N 3000u
#define NO_INIT "ncclCommInitRankConfig:0:3"
#define NO_OTHER "ncclCommShrink:0:3,ncclCommGrow:0:3"

/* ---- what they do ---- */

/* Each rank adds its own power of two, and all of it comes out everywhere. */
static void sum_up(struct rig *rig, uint32_t lane, uint64_t sequence) {
        struct engine_piece piece = { .memory = MEMORY,
                                      .input = lane * 65536,
                                      .output = lane * 65536,
                                      .elements = N,
                                      .dtype = WIRE__DTYPE__I32,
                                      .reduce = ENGINE_SUM };
        int32_t value[N], sum = 0;

        EACH_SITE(rig, site) {
                for (uint32_t i = 0; i < N; i++)
                        value[i] = 1 << site_rank(site);
                sum += value[0];
                site_put(site, piece.input, value, sizeof(value));
        }
        rig_launch(rig, lane, sequence, &piece);
        rig_await(rig, lane, sequence);
        EACH_SITE(rig, site) {
                site_get(site, piece.output, value, sizeof(value));
                for (uint32_t i = 0; i < N; i++)
                        assert_int_equal(value[i], sum);
        }
}

static void sum_up_on_all_lanes(struct rig *rig, uint64_t sequence) {
        for (uint32_t lane = 0; lane < LANES; lane++)
                sum_up(rig, lane, sequence);
}

static void leave_out(struct rig *rig, uint32_t sites) {
        for (uint32_t i = 0; i < rig->n; i++)
                rig->site[i].is_out = (sites >> i & 1) != 0;
}

/* The sites of `without` are not in the former communicator, and those of `left` are not in the
 * next one. */
static void start_with(struct rig *rig, uint32_t without) {
        rig_begin(rig);
        leave_out(rig, without);
        rig_build(rig);
        rig_await_built(rig);
        sum_up_on_all_lanes(rig, 1);
}

static void go_on_with(struct rig *rig, uint32_t left) {
        leave_out(rig, left);
        rig->older = rig->comm++;
        rig_build(rig);
}

/* Drops the former communicator, as a node does that has entered the next generation or left the job. */
static void drop_older(struct rig *rig) {
        for (uint32_t i = 0; i < rig->n; i++)
                rig->site[i].engine->ops->drop(rig->site[i].engine, rig->older);
        rig->older = 0;
}

/* The next communicator works beside the former one, and without it. */
static void follow(struct rig *rig, uint32_t without, uint32_t left, const char *fail) {
        start_with(rig, without);
        set_trouble(fail, "");
        go_on_with(rig, left);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
        drop_older(rig);
        sum_up_on_all_lanes(rig, 2);
}

/* ---- tests ---- */

TEST(those_who_stay_shrink_it) {
        for (uint32_t left = 1; left < 4; left++) { /* sites 0, 1, or both */
                rig_configure(rig, left < 3 ? 3 : 4);
                follow(rig, 0, left, NO_INIT);
        }
}

TEST(who_comes_behind_extends_it) {
        rig_configure(rig, 3);
        follow(rig, 1 << 2, 0, NO_INIT);
        rig_configure(rig, 4);
        follow(rig, 1 << 3 | 1 << 2, 0, NO_INIT);
}

/* The communicator shrinks and grows in turn, as in a job that loses a node and finds another one. */
TEST(it_shrinks_and_grows) {
        rig_configure(rig, 3);
        start_with(rig, 0);
        set_trouble(NO_INIT, "");
        for (unsigned i = 0; i < 4; i++) {
                go_on_with(rig, i % 2 == 0 ? 1 << 2 : 0);
                rig_await_made(rig);
                sum_up_on_all_lanes(rig, 1);
                drop_older(rig);
        }
}

/* No part and no extension whose ranks are in the order of their addresses. */
TEST(others_are_made_of_nothing) {
        static const uint32_t cases[][2] = { { 0, 0 }, { 1, 0 }, { 2, 0 }, { 1, 2 }, { 4, 1 } };

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                rig_configure(rig, 3);
                follow(rig, cases[i][0], cases[i][1], NO_OTHER);
        }
}

TEST(a_library_that_cannot_makes_it_of_nothing) {
        rig_configure(rig, 3);
        rig->own.config.library = FAKE_NCCL_PLAIN;
        follow(rig, 0, 1, NO_OTHER);
}

/* Waits until the GPU works on a launch. */
static void await_work(void) {
        char command[512];

        snprintf(command, sizeof(command), "%s check | grep -q 'is at work'", FAKE_GPU_CONTEXT);
        while (system(command) != 0)
                usleep(1000);
}

/* Something of the one before is under way on rank 0, and ends later. */
TEST(what_is_at_work_is_left_alone) {
        rig_configure(rig, 3);
        start_with(rig, 0);
        set_trouble(NO_OTHER, "");
        site_launch(&rig->site[0], 0, 2, ENGINE_VOTE, NULL);
        await_work();
        go_on_with(rig, 1 << 2);
        UNTIL(rig, rig->site[0].table != NULL && rig->site[1].table != NULL);
        rig->comm--;
        site_launch(&rig->site[1], 0, 2, ENGINE_VOTE, NULL);
        site_launch(&rig->site[2], 0, 2, ENGINE_VOTE, NULL);
        rig->comm++;
        for (uint32_t i = 0; i < 3; i++)
                UNTIL(rig, rig->site[i].n_done_before > 0);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
        drop_older(rig);
}

/* Here that is so of another rank, and of rank 0 it is not: both see who it is. */
TEST(who_cannot_go_on_is_named) {
        rig_configure(rig, 3);
        start_with(rig, 0);
        site_launch(&rig->site[1], 0, 2, ENGINE_VOTE, NULL);
        go_on_with(rig, 1 << 2);
        rig_await_built(rig);
        for (uint32_t i = 0; i < 2; i++)
                assert_lost(&rig->site[i], 1 - i);
        rig_abort(rig);
        rig->comm = rig->older;
        leave_out(rig, 0);
        EACH_SITE(rig, site)
        site->n_aborted = 0;
        rig_abort(rig);
        rig->older = 0;
        rig->comm += 2;
        rig_build(rig);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
}

/* The next one is made of nothing, although the one before is still there. */
static void try_again(struct rig *rig) {
        rig_abort(rig);
        set_trouble(NO_OTHER, "");
        rig->comm++;
        rig_build(rig);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
        drop_older(rig);
}

static void fail_once(struct rig *rig, uint32_t without, uint32_t left, const char *fails) {
        rig_configure(rig, 3);
        start_with(rig, without);
        set_trouble(fails, "");
        go_on_with(rig, left);
        rig_await_built(rig);
        EACH_SITE(rig, site)
        assert_int_equal(site->n_lost, left != 0 ? 1 : 2);
        try_again(rig);
}

TEST(what_fails_is_not_tried_again) {
        fail_once(rig, 0, 1 << 2, "ncclCommShrink:0:3");
        fail_once(rig, 1 << 2, 0, "ncclCommGrow:0:3");
}

/* A communicator is the source of one other, even if nothing has failed and it is still there. */
TEST(each_is_used_once) {
        rig_configure(rig, 3);
        start_with(rig, 0);
        go_on_with(rig, 1 << 2);
        rig_await_made(rig);
        try_again(rig);
}

/* NCCL is at it when it is aborted, or about to begin; and the one before ends, whether it is or not. */
static void stick_once(struct rig *rig, uint32_t without, uint32_t left) {
        rig_configure(rig, 3);
        start_with(rig, without);
        set_trouble(NO_INIT, "init");
        go_on_with(rig, left);
        EACH_SITE(rig, site)
        UNTIL(rig, site->table != NULL);
        rig_abort(rig);
        drop_older(rig);
        rig->comm++;
        set_trouble(NO_OTHER, "");
        rig_build(rig);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
}

TEST(what_does_not_end_is_aborted) {
        stick_once(rig, 0, 1 << 2);
        stick_once(rig, 1 << 2, 0);
}

/* One of them is aborted before, and the other one waits until it is, too. */
TEST(nor_is_what_one_of_them_does_not_do) {
        rig_configure(rig, 3);
        start_with(rig, 0);
        set_trouble(NO_INIT, "");
        rig->site[1].keeps_back = true;
        go_on_with(rig, 1 << 2);
        UNTIL(rig, rig->site[0].table != NULL && rig->site[1].table != NULL);
        rig->site[1].engine->ops->abort(rig->site[1].engine, rig->comm);
        rig_spread(&rig->site[1]);
        UNTIL(rig, rig->site[1].n_aborted > 0);
        rig->site[1].keeps_back = false;
        rig->site[0].engine->ops->abort(rig->site[0].engine, rig->comm);
        UNTIL(rig, rig->site[0].n_aborted > 0);
        set_trouble(NO_OTHER, "");
        rig->comm++;
        rig_build(rig);
        rig_await_made(rig);
        sum_up_on_all_lanes(rig, 1);
        drop_older(rig);
}

/* Memory comes and goes meanwhile. NCCL is asked for nothing of the one before. */
TEST(memory_waits_for_it) {
        cuda_address more;

        rig_configure(rig, 3);
        start_with(rig, 0);
        struct site *site = &rig->site[0];
        site_enter(site);
        assert_int_equal(driver.allocate(&more, MEMORY_BYTES), CUDA_OK);
        set_trouble(NO_INIT, "init");
        go_on_with(rig, 1 << 2);
        UNTIL(rig, rig->site[0].table != NULL && rig->site[1].table != NULL);
        for (unsigned n = 1; n <= 50; n++) {
                assert_int_equal(site_share(site, MEMORY + 1, more), 1);
                UNTIL(rig, site->n_shared >= n);
                assert_true(site->engine->ops->unshare(site->engine, MEMORY + 1));
        }
        set_trouble(NO_INIT, "");
        rig_await_made(rig);
        drop_older(rig);
        site_enter(site);
        assert_int_equal(driver.free(more), CUDA_OK);
        sum_up_on_all_lanes(rig, 1);
}
