/* SPDX-License-Identifier: Apache-2.0 */
/* Which endings of jobs are remembered, and in which order. */
#include "tests.h"

#include <stdio.h>
#include <string.h>

#include "job/keep/endings.h"

#define ALICE 1000
#define BOB 1001

static struct endings endings;

static int setup(void **state) {
        endings = (struct endings){ 0 };
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, NULL)

static void note(uid_t uid, unsigned number) {
        struct job_ending ending = { .uid = uid, .step = number, .reason = ENDING_LEFT };

        snprintf(ending.name, sizeof(ending.name), "job-%u", number);
        endings_note(&endings, &ending);
}

/* How many there are of this user; they come from the youngest to the oldest. */
static unsigned count(uid_t uid) {
        const struct job_ending *ending = NULL;
        uint64_t last = UINT64_MAX;
        unsigned n = 0;

        while ((ending = endings_before(&endings, last)) != NULL) {
                assert_true(ending->sequence < last);
                last = ending->sequence;
                n += ending->uid == uid;
        }
        return n;
}

static bool is_there(uid_t uid, unsigned number) {
        const struct job_ending *ending = NULL;
        uint64_t last = UINT64_MAX;

        while ((ending = endings_before(&endings, last)) != NULL) {
                last = ending->sequence;
                if (ending->uid == uid && ending->step == number)
                        return true;
        }
        return false;
}

TEST(test_none_at_first) {
        assert_null(endings_before(&endings, UINT64_MAX));
}

TEST(test_the_youngest_comes_first) {
        const struct job_ending *ending;

        for (unsigned i = 1; i <= 3; i++)
                note(ALICE, i);
        ending = endings_before(&endings, UINT64_MAX);
        assert_string_equal(ending->name, "job-3");
        ending = endings_before(&endings, ending->sequence);
        assert_string_equal(ending->name, "job-2");
        ending = endings_before(&endings, ending->sequence);
        assert_string_equal(ending->name, "job-1");
        assert_null(endings_before(&endings, ending->sequence));
}

TEST(test_the_oldest_makes_way) {
        for (unsigned i = 1; i <= ENDINGS_MOST + 5; i++)
                note(ALICE, i);
        assert_int_equal(count(ALICE), ENDINGS_MOST);
        assert_false(is_there(ALICE, 5));
        assert_true(is_there(ALICE, 6));
        assert_int_equal(endings_before(&endings, UINT64_MAX)->step, ENDINGS_MOST + 5);
}

TEST(test_nobody_pushes_out_those_of_others) {
        note(ALICE, 1);
        for (unsigned i = 1; i <= 10 * ENDINGS_MOST; i++)
                note(BOB, i);
        assert_true(is_there(ALICE, 1));
        assert_int_equal(count(BOB), ENDINGS_MOST - 1);
        /* She finds room for hers, as long as she has not more than he. */
        for (unsigned i = 2; i <= ENDINGS_MOST; i++)
                note(ALICE, i);
        assert_in_range(count(ALICE), ENDINGS_MOST / 2 - 1, ENDINGS_MOST / 2 + 1);
        assert_int_equal(count(ALICE) + count(BOB), ENDINGS_MOST);
        assert_true(is_there(ALICE, ENDINGS_MOST));
        assert_true(is_there(BOB, 10 * ENDINGS_MOST));
}

TEST(test_many_users_have_one_each) {
        for (unsigned i = 0; i < ENDINGS_MOST + 2; i++)
                note(2000 + i, i);
        assert_int_equal(count(2000), 0);
        assert_int_equal(count(2001), 0);
        for (unsigned i = 2; i < ENDINGS_MOST + 2; i++)
                assert_int_equal(count(2000 + i), 1);
}

TEST(test_each_reason_has_a_name) {
        for (unsigned i = 0; i < ENDING_REASONS; i++) {
                assert_true(strlen(ending_reason_name(i)) > 3);
                for (unsigned k = 0; k < i; k++)
                        assert_string_not_equal(ending_reason_name(i), ending_reason_name(k));
        }
}
