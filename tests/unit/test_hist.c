/* SPDX-License-Identifier: Apache-2.0 */
/* Median and rate over the window of recent values. */
#include "tests.h"

#include "base/hist.h"

TEST_ALONE(empty_says_zero) {
        struct hist hist = { 0 };

        assert_int_equal(hist_median(&hist), 0);
        assert_true(hist_rate(&hist, 1000000) == 0);
        hist_add(&hist, 5, 1000);
        assert_int_equal(hist_median(&hist), 5);
        assert_true(hist_rate(&hist, 1000000) == 0);
}

TEST_ALONE(the_median_is_the_lower_one) {
        static const uint64_t values[] = { 9, 1, 7, 3 };
        struct hist hist = { 0 };

        for (unsigned i = 0; i < 4; i++)
                hist_add(&hist, values[i], i);
        assert_int_equal(hist_median(&hist), 3);
        hist_add(&hist, 100, 4);
        assert_int_equal(hist_median(&hist), 7);
}

TEST_ALONE(old_values_leave_the_window) {
        struct hist hist = { 0 };

        for (unsigned i = 0; i < HIST_WINDOW; i++)
                hist_add(&hist, 1, i);
        assert_int_equal(hist_median(&hist), 1);
        for (unsigned i = 0; i < HIST_WINDOW / 2; i++)
                hist_add(&hist, UINT64_MAX, HIST_WINDOW + i);
        assert_int_equal(hist_median(&hist), 1);
        hist_add(&hist, UINT64_MAX, 2 * HIST_WINDOW);
        assert_true(hist_median(&hist) == UINT64_MAX);
}

TEST_ALONE(the_rate_falls_while_nothing_happens) {
        struct hist hist = { 0 };
        uint64_t now = 0;

        for (unsigned i = 0; i < 3 * HIST_WINDOW; i++)
                hist_add(&hist, 1, now = (uint64_t)i * 10000);
        assert_true(hist_rate(&hist, now) > 99.9 && hist_rate(&hist, now) < 100.1);
        assert_true(hist_rate(&hist, now + 630000) < 51);
        assert_true(hist_rate(&hist, now + 3600000000u) < 0.02);
        assert_true(hist_rate(&hist, 0) == 0);
}
