/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's arithmetic on samples and on kernels' records, with ones that were made by hand. */
#include "../unit/unit.h"

#include "clock.h"
#include "runs.h"

static void percentiles_are_nearest_ranks(void **state) {
        int64_t hundred[100], three[] = { 30, 10, 20 }, one[] = { 7 };

        for (int i = 0; i < 100; i++)
                hundred[i] = 100 - i;
        samples_sort(hundred, 100);
        assert_int_equal(samples_percentile(hundred, 100, 50), 50);
        assert_int_equal(samples_percentile(hundred, 100, 99), 99);
        assert_int_equal(samples_percentile(hundred, 100, 100), 100);
        samples_sort(three, 3);
        assert_int_equal(samples_percentile(three, 3, 50), 20);
        assert_int_equal(samples_percentile(three, 3, 99), 30);
        assert_int_equal(samples_percentile(one, 1, 50), 7);
        assert_int_equal(samples_percentile(one, 1, 0), 7);
}

/* Two kernels that take turns of 10: [0,10) [20,30) [40,50), and [10,20) [30,40). */
static const uint64_t first[] = { 2, 0, 50, 0, 10, 20, 30, 40 };
static const uint64_t second[] = { 1, 10, 40, 0, 20, 30 };

static void turns_have_nothing_in_common(void **state) {
        static struct runs a, b;
        int64_t samples[RUNS_SAMPLES];
        size_t n = 0;

        assert_true(runs_read(&a, first) && runs_read(&b, second));
        assert_int_equal(a.n, 3);
        assert_int_equal(b.n, 2);
        assert_int_equal(runs_common(&a, &b, 0, 50), 0);
        assert_int_equal(runs_alone(&a, 10, 40, samples, &n), 10);
        assert_int_equal(n, 1);
        assert_int_equal(samples[0], 10);
        assert_int_equal(runs_alone(&b, 0, 50, samples, &n), 20);
        assert_int_equal(n, 3);
        assert_int_equal(runs_alone(&a, 5, 25, samples, &n), 10);
        assert_int_equal(n, 3);
}

static void what_overlaps_is_counted_once(void **state) {
        static const uint64_t whole[] = { 0, 5, 45, 0 };
        static struct runs a, b;

        assert_true(runs_read(&a, first) && runs_read(&b, whole));
        assert_int_equal(runs_common(&a, &b, 0, 50), 5 + 10 + 5);
        assert_int_equal(runs_common(&b, &a, 0, 50), 5 + 10 + 5);
        assert_int_equal(runs_common(&a, &b, 8, 25), 2 + 5);
        assert_int_equal(runs_common(&a, &a, 0, 50), 30);
}

static void records_that_make_no_sense(void **state) {
        static const uint64_t many[] = { RUNS_GAPS + 1, 0, 50, 0 }, backwards[] = { 0, 50, 50, 0 };
        static struct runs runs;

        assert_false(runs_read(&runs, many));
        assert_false(runs_read(&runs, backwards));
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(percentiles_are_nearest_ranks),
                cmocka_unit_test(turns_have_nothing_in_common),
                cmocka_unit_test(what_overlaps_is_counted_once),
                cmocka_unit_test(records_that_make_no_sense),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
