/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of several nodes rely on: the fake engine exchanges bytes, and notices whoever breaks the
 * contract. */
#include "tests.h"

#include "fake_engine.h"

#include <stdio.h>

#define BYTES 64u
#define N 2u

struct pair {
        struct fabric *fabric;
        int32_t memory[N][2 * BYTES / sizeof(int32_t)]; /* input and output */
};

static char heard[512];

static void engine_hear(const char *format, unsigned long long a, unsigned long long b) {
        size_t used = strlen(heard);

        snprintf(heard + used, sizeof(heard) - used, format, a, b);
}

static void on_built(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n) {
        engine_hear(n > 0 ? "no %llu;" : "built;", n > 0 ? unreachable[0] : 0, 0);
}

static void on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value) {
        engine_hear("done %llu %llu;", sequence, value[0]);
}

static void on_unreachable(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n) {
        engine_hear("lost %llu;", nodes[0], 0);
}

static void on_aborted(void *owner, uint64_t comm) {
        engine_hear("aborted %llu;", comm, 0);
}

static const struct engine_events events = {
        .built = on_built, .done = on_done, .unreachable = on_unreachable, .aborted = on_aborted
};

static void assert_heard(const char *what) {
        assert_string_equal(heard, what);
        heard[0] = '\0';
}

static void build(struct pair *pair) {
        static const uint32_t nodes[N] = { 0, 1 };

        for (uint32_t node = 0; node < N; node++) {
                struct engine *engine = &pair->fabric->node[node].engine;

                assert_int_equal(engine->ops->build(engine, &(struct engine_build){ .comm = 7 + node,
                                                                                    .name = "a",
                                                                                    .n_lanes = 1,
                                                                                    .n_nodes = N,
                                                                                    .self = node,
                                                                                    .node = nodes }),
                                 0);
        }
}

static void deliver(struct pair *pair) {
        for (uint32_t node = 0; node < N; node++) {
                struct engine *engine = &pair->fabric->node[node].engine;

                engine->ops->dispatch(engine);
        }
}

static int launch(struct pair *pair, uint32_t node, uint64_t sequence, enum engine_kind kind,
                  uint64_t elements, enum engine_reduce reduce) {
        struct engine *engine = &pair->fabric->node[node].engine;

        return engine->ops->launch(engine, &(struct engine_launch){ .comm = 7 + node,
                                                                    .sequence = sequence,
                                                                    .kind = kind,
                                                                    .value = { 3 + node },
                                                                    .piece = { .memory = 1,
                                                                               .output = BYTES,
                                                                               .elements = elements,
                                                                               .dtype = WIRE__DTYPE__I32,
                                                                               .reduce = reduce,
                                                                               .root = 1 } });
}

static int setup(void **state) {
        struct pair *pair = calloc(1, sizeof(*pair));

        heard[0] = '\0';
        pair->fabric = fabric_new();
        for (uint32_t node = 0; node < N; node++) {
                struct engine *engine = &pair->fabric->node[node].engine;

                engine->events = &events;
                engine->ops->share(engine, 1,
                                   &(struct engine_memory){ .address = pair->memory[node],
                                                            .fd = -1,
                                                            .bytes = sizeof(pair->memory[node]) });
                for (int32_t i = 0; i < 4; i++)
                        pair->memory[node][i] = 10 * (int32_t)(node + 1) + i;
        }
        build(pair);
        deliver(pair);
        assert_heard("built;built;");
        *state = pair;
        return 0;
}

static int teardown(void **state) {
        struct pair *pair = *state;

        for (uint32_t node = 0; node < N; node++)
                pair->fabric->node[node].engine.ops->unshare(&pair->fabric->node[node].engine, 1);
        fabric_free(pair->fabric);
        free(pair);
        return 0;
}

#define TEST(name) TEST_OF(name, struct pair *pair, setup, teardown)

TEST(nodes_get_the_same_bytes) {
        assert_int_equal(launch(pair, 0, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        deliver(pair);
        assert_heard("");
        assert_int_equal(launch(pair, 1, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        deliver(pair);
        assert_heard("done 1 3;done 1 3;");
        for (uint32_t node = 0; node < N; node++)
                for (int32_t i = 0; i < 4; i++)
                        assert_int_equal(pair->memory[node][BYTES / 4 + (uint32_t)i], 30 + 2 * i);
        for (uint32_t node = 0; node < N; node++)
                assert_int_equal(launch(pair, node, 2, ENGINE_PAYLOAD, 2, ENGINE_COPY), 0);
        deliver(pair);
        assert_heard("done 2 3;done 2 3;");
        assert_int_equal(pair->memory[0][BYTES / 4 + 1], 21);
        assert_int_equal(pair->fabric->node[0].n_payloads, 2);
}

TEST(a_filler_takes_part_and_votes_nothing) {
        memset(pair->memory[1], 0, BYTES);
        assert_int_equal(launch(pair, 0, 1, ENGINE_PAYLOAD, 4, ENGINE_MAX), 0);
        assert_int_equal(launch(pair, 1, 1, ENGINE_FILLER, 4, ENGINE_MAX), 0);
        assert_int_equal(launch(pair, 0, 2, ENGINE_VOTE, 0, ENGINE_SUM), 0);
        assert_int_equal(launch(pair, 1, 2, ENGINE_FILLER, 0, ENGINE_SUM), 0);
        deliver(pair);
        assert_heard("done 1 0;done 2 0;done 1 0;done 2 0;");
        assert_int_equal(pair->memory[0][BYTES / 4 + 3], 13);
        assert_int_equal(pair->fabric->node[1].n_fillers, 2);
}

TEST(whoever_breaks_the_contract_is_noticed) {
        struct fabric *fabric = pair->fabric;
        struct engine *engine = &fabric->node[0].engine;

        fabric->forgiving = true;
        assert_int_equal(launch(pair, 0, 2, ENGINE_PAYLOAD, 4, ENGINE_SUM), -EINVAL);  /* out of order */
        assert_int_equal(launch(pair, 0, 1, ENGINE_PAYLOAD, 20, ENGINE_SUM), -EINVAL); /* too long */
        assert_int_equal(fabric->complaints, 2);
        assert_int_equal(launch(pair, 0, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        engine->ops->drop(engine, 7); /* it has not ended */
        assert_int_equal(fabric->complaints, 3);
        assert_int_equal(launch(pair, 0, 2, ENGINE_PAYLOAD, 4, ENGINE_SUM), -EINVAL);
        assert_int_equal(fabric->complaints, 5); /* and there is none any more */
}

TEST(other_sizes_and_other_hands_are_noticed) {
        struct fabric *fabric = pair->fabric;

        fabric->forgiving = true;
        for (uint32_t node = 0; node < N; node++)
                assert_int_equal(launch(pair, node, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        pair->memory[0][BYTES / 4] = 1;
        pair->memory[1][0] = 1;
        deliver(pair);
        assert_int_equal(fabric->complaints, 2);
        assert_int_equal(launch(pair, 0, 2, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        assert_int_equal(launch(pair, 1, 2, ENGINE_PAYLOAD, 4, ENGINE_MAX), 0);
        assert_int_equal(fabric->complaints, 3);
        assert_int_equal(launch(pair, 0, 3, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        assert_int_equal(launch(pair, 1, 3, ENGINE_PAYLOAD, 3, ENGINE_SUM), 0);
        assert_int_equal(fabric->complaints, 4);
        for (uint32_t node = 0; node < N; node++)
                fabric->node[node].engine.ops->abort(&fabric->node[node].engine, 7 + node);
        heard[0] = '\0';
        deliver(pair);
        assert_heard("aborted 7;aborted 8;");
}

TEST(nothing_comes_of_what_is_aborted) {
        struct fake_engine *fake = &pair->fabric->node[0];

        pair->fabric->hangs = true;
        for (uint32_t node = 0; node < N; node++)
                assert_int_equal(launch(pair, node, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        deliver(pair);
        assert_heard("");
        fabric_go_on(pair->fabric);
        fake->engine.ops->abort(&fake->engine, 7);
        deliver(pair);
        assert_heard("aborted 7;done 1 3;");
}

TEST(a_lost_node_is_named) {
        fake_lose(&pair->fabric->node[1]);
        assert_int_equal(launch(pair, 0, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        assert_int_equal(launch(pair, 1, 1, ENGINE_PAYLOAD, 4, ENGINE_SUM), 0);
        deliver(pair);
        assert_heard("lost 1;");
        for (uint32_t node = 0; node < N; node++)
                pair->fabric->node[node].engine.ops->abort(&pair->fabric->node[node].engine, 7 + node);
        pair->fabric->node[1].held = false;
        deliver(pair);
        assert_heard("aborted 7;aborted 8;");
}
