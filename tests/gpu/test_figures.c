/* SPDX-License-Identifier: Apache-2.0 */
/* The probe's arithmetic on samples, and on what it sees of two kernels, with ones that were made by hand. */
#include "../unit/unit.h"

#include "clock.h"
#include "watch.h"

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

/* So many looks of 10 us each, at which these have moved. Returns whether a kernel has ended. */
static bool look(struct watch *watch, int64_t *now, unsigned looks, bool first, bool second) {
        bool over = false;

        while (looks-- > 0 && !over) {
                over = watch_note(watch, (bool[2]){ first, second }, *now, *now + 10000);
                *now += 10000;
        }
        return over;
}

static void turns_have_nothing_in_common(void **state) {
        static struct watch watch;
        int64_t now = 1;

        look(&watch, &now, 3, true, false); /* the second one has not begun */
        for (unsigned i = 0; i < 5; i++) {
                assert_false(look(&watch, &now, 2, false, true));
                assert_false(look(&watch, &now, 1, false, false));
                assert_false(look(&watch, &now, 3, true, false));
        }
        assert_true(look(&watch, &now, 20000, true, false));
        const struct watch_totals *seen = watch_end(&watch);
        assert_non_null(seen);
        assert_int_equal(seen->both, 0);
        assert_int_equal(seen->alone[0], 4 * 30000);
        assert_int_equal(seen->alone[1], 9 * 10000); /* without the look at which it began */
        assert_int_equal(seen->neither, 5 * 10000 - 10000);
        assert_int_equal(seen->turns, 8);
        for (unsigned i = 0; i < 8; i++)
                assert_int_equal(watch.turn[i], i == 0 ? 20000 : 30000);
}

static void what_overlaps_is_counted_once(void **state) {
        static struct watch watch;
        int64_t now = 1;

        look(&watch, &now, 5, true, true);
        look(&watch, &now, 3, false, true);
        watch_note(&watch, (bool[2]){ true, false }, now, now + WATCH_BLIND_NS); /* away meanwhile */
        now += WATCH_BLIND_NS;
        look(&watch, &now, 4, true, true);
        const struct watch_totals *seen = watch_end(&watch);
        assert_non_null(seen);
        assert_int_equal(seen->both, 8 * 10000);
        assert_int_equal(seen->alone[0], 0);
        assert_int_equal(seen->alone[1], 3 * 10000);
        assert_int_equal(seen->turns, 0);
}

static void one_may_end_before_the_other_begins(void **state) {
        static struct watch watch;
        int64_t now = 1;

        look(&watch, &now, 50, false, false);
        look(&watch, &now, 50, false, true);
        assert_true(look(&watch, &now, 20000, false, false));
        assert_null(watch_end(&watch));
}

int main(void) {
        static const struct CMUnitTest tests[] = {
                cmocka_unit_test(percentiles_are_nearest_ranks),
                cmocka_unit_test(turns_have_nothing_in_common),
                cmocka_unit_test(what_overlaps_is_counted_once),
                cmocka_unit_test(one_may_end_before_the_other_begins),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
