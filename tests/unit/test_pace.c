/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a uid may connect: a burst at first, then so many a second, each uid for itself. */
#include "unit.h"

#include "base/clock.h"
#include "socket/pace.h"

#define START (1000 * USEC_PER_SEC)

static unsigned admitted(struct pace *pace, uid_t uid, unsigned tries, uint64_t now) {
        unsigned n = 0;

        for (unsigned i = 0; i < tries; i++)
                n += pace_admits(pace, uid, 100, now);
        return n;
}

static void a_burst_then_so_many_a_second(void **state) {
        struct pace pace = { 0 };

        assert_int_equal(admitted(&pace, 7, 1000, START), 100);
        assert_int_equal(admitted(&pace, 7, 1000, START + USEC_PER_SEC / 2), 50);
        assert_int_equal(admitted(&pace, 7, 1000, START + USEC_PER_SEC), 50);
        assert_int_equal(admitted(&pace, 7, 1000, START + 100 * USEC_PER_SEC), 100);
}

static void trying_costs_nothing(void **state) {
        struct pace pace = { 0 };
        unsigned n = 0;

        admitted(&pace, 7, 100, START);
        for (unsigned i = 1; i <= 10000; i++)   /* for a second, every 100 us */
                n += pace_admits(&pace, 7, 100, START + i * 100);
        assert_in_range(n, 99, 100);
}

static void uids_do_not_share(void **state) {
        struct pace pace = { 0 };

        assert_int_equal(admitted(&pace, 7, 1000, START), 100);
        assert_int_equal(admitted(&pace, 8, 1000, START), 100);
        assert_int_equal(admitted(&pace, 7, 1, START), 0);
}

static void the_one_who_stayed_away_longest_is_forgotten(void **state) {
        struct pace pace = { 0 };

        for (unsigned uid = 0; uid < PACE_PLACES; uid++)
                assert_int_equal(admitted(&pace, uid, 1000, START + uid), 100);
        assert_int_equal(admitted(&pace, 1000, 1, START + 100), 1);
        assert_int_equal(admitted(&pace, 1, 1, START + 101), 0);        /* is known still */
        assert_int_equal(admitted(&pace, 0, 1, START + 102), 1);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_burst_then_so_many_a_second),
                cmocka_unit_test(trying_costs_nothing),
                cmocka_unit_test(uids_do_not_share),
                cmocka_unit_test(the_one_who_stayed_away_longest_is_forgotten),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
