/* SPDX-License-Identifier: Apache-2.0 */
/* Turns on the event thread: a budget for each uid and pass, and every connection once in a round. */
#include "unit.h"

#include "socket/turn.h"

static bool take(struct turns *turns, uid_t uid, uint64_t pass, uint64_t *round, uint64_t us) {
        struct turn_place *place = turn_take(turns, uid, pass, round);

        if (place != NULL)
                turn_charge(place, us);
        return place != NULL;
}

static void whoever_is_quick_goes_on_in_each_pass(void **state) {
        struct turns turns = { 0 };
        uint64_t round[3] = { 0 };

        for (uint64_t pass = 1; pass < 100; pass++)
                for (unsigned i = 0; i < 3; i++)
                        assert_true(take(&turns, 7, pass, &round[i], 10));
}

static void a_uid_that_has_used_its_budget_waits_and_others_do_not(void **state) {
        struct turns turns = { 0 };
        uint64_t mine[2] = { 0 }, other = 0;

        assert_true(take(&turns, 7, 1, &mine[0], TURN_BUDGET));
        assert_false(take(&turns, 7, 1, &mine[1], 1));
        assert_true(take(&turns, 8, 1, &other, 1));
        assert_true(take(&turns, 7, 2, &mine[1], 1));
}

/* The kernel names them in the same order in each pass; each takes a whole budget. */
static void each_connection_has_its_turn_before_one_has_two(void **state) {
        struct turns turns = { 0 };
        uint64_t round[10] = { 0 };
        unsigned served[10] = { 0 };

        for (uint64_t pass = 1; pass <= 120; pass++)
                for (unsigned i = 0; i < 10; i++)
                        served[i] += take(&turns, 7, pass, &round[i], TURN_BUDGET);
        for (unsigned i = 0; i < 10; i++)
                assert_in_range(served[i], 10, 12);
}

static void a_crowd_of_uids_is_served(void **state) {
        struct turns turns = { 0 };
        uint64_t round[200] = { 0 };

        for (uint64_t pass = 1; pass < 5; pass++)
                for (unsigned uid = 0; uid < 200; uid++)
                        assert_true(take(&turns, uid, pass, &round[uid], 10));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(whoever_is_quick_goes_on_in_each_pass),
                cmocka_unit_test(a_uid_that_has_used_its_budget_waits_and_others_do_not),
                cmocka_unit_test(each_connection_has_its_turn_before_one_has_two),
                cmocka_unit_test(a_crowd_of_uids_is_served),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
