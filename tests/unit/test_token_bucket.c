/* SPDX-License-Identifier: Apache-2.0 */
/* How often something may be done: a burst at first, then so many times a second. */
#include "tests.h"

#include "base/clock.h"
#include "base/token_bucket.h"

#define START (1000 * USEC_PER_SEC)

static unsigned taken(struct token_bucket *bucket, unsigned tries, uint64_t now) {
        unsigned n = 0;

        for (unsigned i = 0; i < tries; i++)
                n += token_bucket_take(bucket, 100, now);
        return n;
}

TEST_ALONE(a_burst_then_so_many_a_second) {
        struct token_bucket bucket = { 0 };

        assert_int_equal(taken(&bucket, 1000, START), 100);
        assert_int_equal(taken(&bucket, 1000, START + USEC_PER_SEC / 2), 50);
        assert_int_equal(taken(&bucket, 1000, START + USEC_PER_SEC), 50);
        assert_int_equal(taken(&bucket, 1000, START + 100 * USEC_PER_SEC), 100);
}

TEST_ALONE(what_is_not_used_does_not_add_up) {
        struct token_bucket bucket = { 0 };

        assert_int_equal(taken(&bucket, 1, START), 1);
        assert_int_equal(taken(&bucket, 1000, START + USEC_PER_SEC / 2), 100);
}

TEST_ALONE(trying_costs_nothing) {
        struct token_bucket bucket = { 0 };
        unsigned n = 0;

        taken(&bucket, 100, START);
        for (unsigned i = 1; i <= 10000; i++) /* for a second, every 100 us */
                n += token_bucket_take(&bucket, 100, START + i * 100);
        assert_in_range(n, 99, 100);
}

TEST_ALONE(after_a_second_it_is_as_good_as_new) {
        struct token_bucket bucket = { 0 };

        assert_true(token_bucket_is_full(&bucket, START));
        assert_int_equal(taken(&bucket, 1, START), 1);
        assert_false(token_bucket_is_full(&bucket, START + USEC_PER_SEC - 1));
        assert_true(token_bucket_is_full(&bucket, START + USEC_PER_SEC));
}

TEST_ALONE(a_debt_is_paid_before_there_are_tokens) {
        struct token_bucket bucket = { 0 };

        assert_true(token_bucket_fill(&bucket, 1000, 20, START) == 20);
        bucket.left -= 30;
        assert_true(token_bucket_fill(&bucket, 1000, 20, START + 10 * USEC_PER_MSEC) == 0);
        assert_true(token_bucket_fill(&bucket, 1000, 20, START + 15 * USEC_PER_MSEC) == 5);
        assert_true(token_bucket_fill(&bucket, 1000, 20, START + USEC_PER_SEC) == 20);
}
