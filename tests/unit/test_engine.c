/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of several nodes rely on the fake engine to notice a breach of the contract of an engine.
 * test_nodes.c covers its exchange of bytes, its aborts and its lost nodes. */
#include "tests.h"

#include "fake_engine.h"

#define BYTES 64u
#define N 2u

static struct fabric *fabric;
static int32_t memory[N][2 * BYTES / sizeof(int32_t)]; /* input and output */

static struct engine *engine_of(uint32_t node) {
        return &fabric->node[node].engine;
}

static void on_publish(void *owner, uint64_t comm, const void *table, size_t bytes) {
        uint32_t rank = owner == &memory[0] ? 0 : 1, other = 1 - rank;

        assert_int_equal(engine_of(other)->ops->learn(engine_of(other), 7 + other, rank, table, bytes), 0);
}

static void on_built(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n) {}

static void on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value) {}

static void on_aborted(void *owner, uint64_t comm) {}

static const struct engine_events events = {
        .publish = on_publish, .built = on_built, .done = on_done, .aborted = on_aborted
};

static void deliver(void) {
        for (uint32_t node = 0; node < N; node++)
                engine_of(node)->ops->dispatch(engine_of(node));
}

static int launch(uint32_t node, uint64_t sequence, uint64_t elements, enum engine_reduce reduce) {
        return engine_of(node)->ops->launch(engine_of(node),
                                            &(struct engine_launch){ .comm = 7 + node,
                                                                     .sequence = sequence,
                                                                     .kind = ENGINE_PAYLOAD,
                                                                     .piece = { .memory = 1,
                                                                                .output = BYTES,
                                                                                .elements = elements,
                                                                                .dtype = WIRE__DTYPE__I32,
                                                                                .reduce = reduce } });
}

static int setup(void **state) {
        static const uint32_t nodes[N] = { 0, 1 };

        fabric = fabric_new();
        for (uint32_t node = 0; node < N; node++) {
                struct engine_build build = {
                        .comm = 7 + node, .name = "a", .n_lanes = 1, .n_nodes = N, .self = node, .node = nodes
                };
                struct engine_memory shared = { .address = memory[node],
                                                .fd = -1,
                                                .bytes = sizeof(memory[node]) };

                fabric->node[node].engine.events = &events;
                fabric->node[node].engine.owner = memory[node];
                engine_of(node)->ops->share(engine_of(node), 1, &shared);
                assert_int_equal(engine_of(node)->ops->build(engine_of(node), &build), 0);
        }
        deliver();
        deliver();
        fabric->forgiving = true;
        return 0;
}

static int teardown(void **state) {
        for (uint32_t node = 0; node < N; node++)
                engine_of(node)->ops->unshare(engine_of(node), 1);
        fabric_free(fabric);
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

TEST(what_is_not_next_or_not_shared_is_noticed) {
        assert_int_equal(launch(0, 2, 4, ENGINE_SUM), -EINVAL);  /* out of order */
        assert_int_equal(launch(0, 1, 20, ENGINE_SUM), -EINVAL); /* too long */
        assert_int_equal(fabric->complaints, 2);
        assert_int_equal(launch(0, 1, 4, ENGINE_SUM), 0);
        engine_of(0)->ops->drop(engine_of(0), 7); /* it has not ended */
        assert_int_equal(fabric->complaints, 3);
        assert_int_equal(launch(0, 2, 4, ENGINE_SUM), -EINVAL);
        assert_int_equal(fabric->complaints, 5); /* and there is none any more */
}

TEST(other_sizes_and_other_hands_are_noticed) {
        for (uint32_t node = 0; node < N; node++)
                assert_int_equal(launch(node, 1, 4, ENGINE_SUM), 0);
        memory[0][BYTES / 4] = 1;
        memory[1][0]++;
        deliver();
        assert_int_equal(fabric->complaints, 2);
        assert_int_equal(launch(0, 2, 4, ENGINE_SUM), 0);
        assert_int_equal(launch(1, 2, 4, ENGINE_MAX), 0);
        assert_int_equal(fabric->complaints, 3);
        assert_int_equal(launch(0, 3, 4, ENGINE_SUM), 0);
        assert_int_equal(launch(1, 3, 3, ENGINE_SUM), 0);
        assert_int_equal(fabric->complaints, 4);
        for (uint32_t node = 0; node < N; node++)
                engine_of(node)->ops->abort(engine_of(node), 7 + node);
        deliver();
}
