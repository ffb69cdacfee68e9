/* SPDX-License-Identifier: Apache-2.0 */
/* Round trips, and how far another daemon's clocks are from ours. */
#include "link/pulse.h"
#include "unit.h"

static void the_fastest_answer_counts(void **state) {
        struct pulse pulse = { 0 };

        assert_null(pulse_best(&pulse));
        /* Theirs is 5,000 ahead; the way there took 100 of 110, so this one is wrong by 45. */
        pulse_add(&pulse, 1000, 1110, 2110, 6100, 7100);
        assert_int_equal(pulse_best(&pulse)->round_trip, 110);
        assert_int_equal(pulse_best(&pulse)->clock, 5045);
        pulse_add(&pulse, 2000, 2020, 3020, 7010, 8010);
        assert_int_equal(pulse_best(&pulse)->round_trip, 20);
        assert_int_equal(pulse_best(&pulse)->clock, 5000);
        assert_int_equal(pulse_best(&pulse)->wall, 5000);
        pulse_add(&pulse, 3000, 3500, 4500, 8400, 9400);
        assert_int_equal(pulse_best(&pulse)->clock, 5000);
}

static void clocks_can_be_behind(void **state) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 1000000, 1000010, 9000010, 5, 8000005);
        assert_int_equal(pulse_best(&pulse)->clock, -1000000);
        assert_int_equal(pulse_best(&pulse)->wall, -1000000);
}

static void only_the_latest_count(void **state) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 0, 2, 2, 1, 1);
        for (unsigned i = 1; i < PULSE_SAMPLES; i++)
                pulse_add(&pulse, 1000 * i, 1000 * i + 10, 0, 0, 0);
        assert_int_equal(pulse_best(&pulse)->round_trip, 2);
        pulse_add(&pulse, 90000, 90010, 0, 0, 0);
        assert_int_equal(pulse_best(&pulse)->round_trip, 10);
}

static void an_answer_from_the_future_is_none(void **state) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 1001, 1000, 0, 0, 0);
        assert_null(pulse_best(&pulse));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_fastest_answer_counts),
                cmocka_unit_test(clocks_can_be_behind),
                cmocka_unit_test(only_the_latest_count),
                cmocka_unit_test(an_answer_from_the_future_is_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
