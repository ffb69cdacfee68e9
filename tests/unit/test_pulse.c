/* SPDX-License-Identifier: Apache-2.0 */
/* Round trips, and how far another daemon's clocks are from ours. */
#include "link/pulse.h"
#include "tests.h"

TEST_ALONE(the_fastest_answer_counts) {
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

TEST_ALONE(clocks_can_be_behind) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 1000000, 1000010, 9000010, 5, 8000005);
        assert_int_equal(pulse_best(&pulse)->clock, -1000000);
        assert_int_equal(pulse_best(&pulse)->wall, -1000000);
}

TEST_ALONE(only_the_latest_count) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 0, 2, 2, 1, 1);
        for (unsigned i = 1; i < PULSE_SAMPLES; i++)
                pulse_add(&pulse, 1000 * i, 1000 * i + 10, 0, 0, 0);
        assert_int_equal(pulse_best(&pulse)->round_trip, 2);
        pulse_add(&pulse, 90000, 90010, 0, 0, 0);
        assert_int_equal(pulse_best(&pulse)->round_trip, 10);
}

TEST_ALONE(an_answer_from_the_future_is_none) {
        struct pulse pulse = { 0 };

        pulse_add(&pulse, 1001, 1000, 0, 0, 0);
        assert_null(pulse_best(&pulse));
}
