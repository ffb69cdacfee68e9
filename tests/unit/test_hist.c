/* SPDX-License-Identifier: Apache-2.0 */
/* Median and rate over the window of recent values. */
#include "unit.h"

#include "base/hist.h"

static void empty_says_zero(void **state) {
        struct hist hist = { 0 };

        assert_int_equal(hist_median(&hist), 0);
        assert_true(hist_rate(&hist, 1000000) == 0);
        hist_add(&hist, 5, 1000);
        assert_int_equal(hist_median(&hist), 5);
        assert_true(hist_rate(&hist, 1000000) == 0);
}

static void the_median_is_the_lower_one(void **state) {
        static const uint64_t values[] = { 9, 1, 7, 3 };
        struct hist hist = { 0 };

        for (unsigned i = 0; i < 4; i++)
                hist_add(&hist, values[i], i);
        assert_int_equal(hist_median(&hist), 3);
        hist_add(&hist, 100, 4);
        assert_int_equal(hist_median(&hist), 7);
}

static void old_values_leave_the_window(void **state) {
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

static void the_rate_falls_while_nothing_happens(void **state) {
        struct hist hist = { 0 };
        uint64_t now = 0;

        for (unsigned i = 0; i < 3 * HIST_WINDOW; i++)
                hist_add(&hist, 1, now = (uint64_t)i * 10000);
        assert_true(hist_rate(&hist, now) > 99.9 && hist_rate(&hist, now) < 100.1);
        assert_true(hist_rate(&hist, now + 630000) < 51);
        assert_true(hist_rate(&hist, now + 3600000000u) < 0.02);
        assert_true(hist_rate(&hist, 0) == 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(empty_says_zero),
                cmocka_unit_test(the_median_is_the_lower_one),
                cmocka_unit_test(old_values_leave_the_window),
                cmocka_unit_test(the_rate_falls_while_nothing_happens),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
