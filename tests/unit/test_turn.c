/* SPDX-License-Identifier: Apache-2.0 */
/* Turns on the event thread: a budget for each user and pass, and every connection once in a round. */
#include "tests.h"

#include "base/turn.h"

static bool take(struct turn *turn, uint64_t pass, uint64_t *next, uint64_t us) {
        if (!turn_take(turn, pass, next))
                return false;
        turn_charge(turn, us);
        return true;
}

TEST_ALONE(whoever_is_quick_goes_on_in_each_pass) {
        struct turn turn = { 0 };
        uint64_t next[3] = { 0 };

        for (uint64_t pass = 1; pass < 100; pass++)
                for (unsigned i = 0; i < 3; i++)
                        assert_true(take(&turn, pass, &next[i], 10));
}

TEST_ALONE(a_user_that_has_used_its_budget_waits_and_others_do_not) {
        struct turn turn = { 0 }, others = { 0 };
        uint64_t mine[2] = { 0 }, other = 0;

        assert_true(take(&turn, 1, &mine[0], TURN_BUDGET));
        assert_false(take(&turn, 1, &mine[1], 1));
        assert_true(take(&others, 1, &other, 1));
        assert_true(take(&turn, 2, &mine[1], 1));
}

/* The kernel names them in the same order in each pass; each takes a whole budget. */
TEST_ALONE(each_connection_has_its_turn_before_one_has_two) {
        struct turn turn = { 0 };
        uint64_t next[10] = { 0 };
        unsigned served[10] = { 0 };

        for (uint64_t pass = 1; pass <= 120; pass++)
                for (unsigned i = 0; i < 10; i++)
                        served[i] += take(&turn, pass, &next[i], TURN_BUDGET);
        for (unsigned i = 0; i < 10; i++)
                assert_in_range(served[i], 10, 12);
}

/* The loop counts its passes from 0. */
TEST_ALONE(the_first_pass_counts_as_well) {
        struct turn turn = { 0 };
        uint64_t next[2] = { 0 };

        assert_true(take(&turn, 0, &next[0], TURN_BUDGET));
        assert_false(take(&turn, 0, &next[0], 1));
        assert_false(take(&turn, 0, &next[1], 1));
        assert_true(take(&turn, 1, &next[1], 1));
}
