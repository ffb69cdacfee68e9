/* SPDX-License-Identifier: Apache-2.0 */
/* A state of one daemon, and a plan of three buckets in it. */
#pragma once

#include "tests.h"

#include "job/keep/state.h"

#define BUCKETS 3u
#define WORLD 2u

static const struct {
        uint32_t first, n;
} bucket[BUCKETS] = { { .first = 0, .n = 9 }, { .first = 9, .n = 1 }, { .first = 10, .n = 20 } };
static const struct state_key key = {
        .uid = 1000, .job = "job", .incarnation = 7, .plan = 1, .params = 30, .buckets = BUCKETS
};
static struct state *ours;

/* What was measured of a bucket: `value`, and one and two more of the ranks, of which the second has `count`
 * values that are not finite. */
static inline void state_keep(struct state_plan *plan, uint32_t b, double value, uint64_t count,
                              const uint8_t *unused) {
        double squares[WORLD] = { value + 1, value + 2 };
        uint64_t counts[WORLD] = { 0, count };
        struct backend_result result = { .n_inputs = WORLD,
                                         .sum_squares = value,
                                         .input_sum_squares = squares,
                                         .input_nonfinite = counts };

        state_done(plan, b, bucket[b].first, &result, unused, (bucket[b].n + 7) / 8);
}

static int set_up(void **state) {
        return state_new(&ours);
}

static int tear_down(void **state) {
        ours = state_free(ours);
        return 0;
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)
