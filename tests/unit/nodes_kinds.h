/* SPDX-License-Identifier: Apache-2.0 */
/* On which clusters of nodes_fixture.h a test runs, which includes this. */
#pragma once

enum kind {
        ONE_AVG,
        TWO_AVG,
        TWO_MAX,
        THREE_AVG,
        THREE_SUM,
        THREE_MIN,
        THREE_FOR_TWO, /* two members are enough after a while */
        THREE_MIN_FOR_TWO,
        EIGHT,
        MOST,
        KINDS
};

static const struct {
        const char *name;
        uint32_t nodes;
        unsigned dtype, reduce;
        uint32_t least; /* members that are enough after a while; 0: all are needed */
} kinds[KINDS] = {
        [ONE_AVG] = { "one node, average", 1, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 0 },
        [TWO_AVG] = { "two nodes, average", 2, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 0 },
        [TWO_MAX] = { "two nodes, maximum", 2, WIRE__DTYPE__F32, WIRE__REDUCE__MAX, 0 },
        [THREE_AVG] = { "three nodes, average", 3, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 0 },
        [THREE_SUM] = { "three nodes, sum", 3, WIRE__DTYPE__I32, WIRE__REDUCE__SUM, 0 },
        [THREE_MIN] = { "three nodes, minimum", 3, WIRE__DTYPE__I32, WIRE__REDUCE__MIN, 0 },
        [THREE_FOR_TWO] = { "three nodes for two, sum", 3, WIRE__DTYPE__I32, WIRE__REDUCE__SUM, 2 },
        [THREE_MIN_FOR_TWO] = { "three nodes for two, minimum", 3, WIRE__DTYPE__I32, WIRE__REDUCE__MIN, 2 },
        [EIGHT] = { "eight nodes", 8, WIRE__DTYPE__F32, WIRE__REDUCE__SUM, 0 },
        [MOST] = { "as many nodes as there may be", MOST_NODES, WIRE__DTYPE__F32, WIRE__REDUCE__SUM, 0 },
};

static inline void setup_kind(enum kind kind) {
        setup_cluster(kinds[kind].nodes, kinds[kind].dtype, kinds[kind].reduce);
        if (kinds[kind].least == 0)
                return;
        cluster->least = kinds[kind].least;
        cluster->grace = 300 * USEC_PER_MSEC;
}

static int setup_nodes(void **state) {
        setup_kind((enum kind)(uintptr_t)*state);
        return 0;
}

static inline int setup_formed_nodes(void **state) {
        setup_nodes(state);
        form_four();
        return 0;
}

static inline void nodes_list(const char *name, CMUnitTestFunction run, CMFixtureFunction before,
                              CMFixtureFunction after, const enum kind *on, size_t n) {
        static char names[sizeof(tests) / sizeof(tests[0])][128];

        for (size_t i = 0; i < n; i++) {
                snprintf(names[n_tests], sizeof(names[0]), "%s: %s", name, kinds[on[i]].name);
                tests_add(names[n_tests], run, before, after);
                tests[n_tests - 1].initial_state = (void *)(uintptr_t)on[i];
        }
}

#define NODES_TEST_BETWEEN(before, after, name, ...)                                                         \
        static void name(void);                                                                              \
        static void name##_run(void **state) {                                                               \
                name();                                                                                      \
        }                                                                                                    \
        __attribute__((constructor)) static void name##_list(void) {                                         \
                static const enum kind on[] = { __VA_ARGS__ };                                               \
                                                                                                             \
                nodes_list(#name, name##_run, before, after, on, sizeof(on) / sizeof(on[0]));                \
        }                                                                                                    \
        static void name(void)

/* A test that runs on each of these kinds of clusters. */
#define NODES_TEST(name, ...) NODES_TEST_BETWEEN(setup_nodes, teardown, name, __VA_ARGS__)

/* The same, after form_four(). */
#define FORMED_TEST(name, ...) NODES_TEST_BETWEEN(setup_formed_nodes, teardown, name, __VA_ARGS__)
