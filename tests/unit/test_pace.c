/* SPDX-License-Identifier: Apache-2.0 */
/* How fast a user may connect: a burst at first, then so many a second. */
#include "tests.h"

#include "base/clock.h"
#include "base/pace.h"

#define START (1000 * USEC_PER_SEC)

static unsigned admitted(struct pace *pace, unsigned tries, uint64_t now) {
        unsigned n = 0;

        for (unsigned i = 0; i < tries; i++)
                n += pace_admits(pace, 100, now);
        return n;
}

TEST_ALONE(a_burst_then_so_many_a_second) {
        struct pace pace = { 0 };

        assert_int_equal(admitted(&pace, 1000, START), 100);
        assert_int_equal(admitted(&pace, 1000, START + USEC_PER_SEC / 2), 50);
        assert_int_equal(admitted(&pace, 1000, START + USEC_PER_SEC), 50);
        assert_int_equal(admitted(&pace, 1000, START + 100 * USEC_PER_SEC), 100);
}

TEST_ALONE(what_is_not_used_does_not_add_up) {
        struct pace pace = { 0 };

        assert_int_equal(admitted(&pace, 1, START), 1);
        assert_int_equal(admitted(&pace, 1000, START + USEC_PER_SEC / 2), 100);
}

TEST_ALONE(trying_costs_nothing) {
        struct pace pace = { 0 };
        unsigned n = 0;

        admitted(&pace, 100, START);
        for (unsigned i = 1; i <= 10000; i++) /* for a second, every 100 us */
                n += pace_admits(&pace, 100, START + i * 100);
        assert_in_range(n, 99, 100);
}

TEST_ALONE(after_a_second_it_is_as_good_as_new) {
        struct pace pace = { 0 };

        assert_true(pace_is_full(&pace, START));
        assert_int_equal(admitted(&pace, 1, START), 1);
        assert_false(pace_is_full(&pace, START + USEC_PER_SEC - 1));
        assert_true(pace_is_full(&pace, START + USEC_PER_SEC));
}
