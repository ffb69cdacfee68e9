/* SPDX-License-Identifier: Apache-2.0 */
/* Which ended jobs are remembered, and in which order. */
#include "tests.h"

#include <stdio.h>
#include <string.h>

#include "job/keep/archive.h"

#define ALICE 1000
#define BOB 1001

static struct archive archive;

static int setup(void **state) {
        archive = (struct archive){ 0 };
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, NULL)

static void note(uid_t uid, unsigned number) {
        struct archived_job archived = { .uid = uid, .step = number, .reason = ARCHIVE_LEFT };

        snprintf(archived.name, sizeof(archived.name), "job-%u", number);
        archive_add(&archive, &archived);
}

/* How many there are of this user; they come from the youngest to the oldest. */
static unsigned count(uid_t uid) {
        const struct archived_job *archived = NULL;
        uint64_t last = UINT64_MAX;
        unsigned n = 0;

        while ((archived = archive_before(&archive, last)) != NULL) {
                assert_true(archived->sequence < last);
                last = archived->sequence;
                n += archived->uid == uid;
        }
        return n;
}

static bool is_there(uid_t uid, unsigned number) {
        const struct archived_job *archived = NULL;
        uint64_t last = UINT64_MAX;

        while ((archived = archive_before(&archive, last)) != NULL) {
                last = archived->sequence;
                if (archived->uid == uid && archived->step == number)
                        return true;
        }
        return false;
}

TEST(test_none_at_first) {
        assert_null(archive_before(&archive, UINT64_MAX));
}

TEST(test_the_youngest_comes_first) {
        const struct archived_job *archived;

        for (unsigned i = 1; i <= 3; i++)
                note(ALICE, i);
        archived = archive_before(&archive, UINT64_MAX);
        assert_string_equal(archived->name, "job-3");
        archived = archive_before(&archive, archived->sequence);
        assert_string_equal(archived->name, "job-2");
        archived = archive_before(&archive, archived->sequence);
        assert_string_equal(archived->name, "job-1");
        assert_null(archive_before(&archive, archived->sequence));
}

TEST(test_the_oldest_makes_way) {
        for (unsigned i = 1; i <= ARCHIVE_MOST + 5; i++)
                note(ALICE, i);
        assert_int_equal(count(ALICE), ARCHIVE_MOST);
        assert_false(is_there(ALICE, 5));
        assert_true(is_there(ALICE, 6));
        assert_int_equal(archive_before(&archive, UINT64_MAX)->step, ARCHIVE_MOST + 5);
}

TEST(test_nobody_pushes_out_those_of_others) {
        note(ALICE, 1);
        for (unsigned i = 1; i <= 10 * ARCHIVE_MOST; i++)
                note(BOB, i);
        assert_true(is_there(ALICE, 1));
        assert_int_equal(count(BOB), ARCHIVE_MOST - 1);
        /* She finds room for hers, as long as she has not more than he. */
        for (unsigned i = 2; i <= ARCHIVE_MOST; i++)
                note(ALICE, i);
        assert_in_range(count(ALICE), ARCHIVE_MOST / 2 - 1, ARCHIVE_MOST / 2 + 1);
        assert_int_equal(count(ALICE) + count(BOB), ARCHIVE_MOST);
        assert_true(is_there(ALICE, ARCHIVE_MOST));
        assert_true(is_there(BOB, 10 * ARCHIVE_MOST));
}

TEST(test_many_users_have_one_each) {
        for (unsigned i = 0; i < ARCHIVE_MOST + 2; i++)
                note(2000 + i, i);
        assert_int_equal(count(2000), 0);
        assert_int_equal(count(2001), 0);
        for (unsigned i = 2; i < ARCHIVE_MOST + 2; i++)
                assert_int_equal(count(2000 + i), 1);
}

TEST(test_each_reason_has_a_name) {
        for (unsigned i = 0; i < ARCHIVE_REASONS; i++) {
                assert_true(strlen(archive_reason_name(i)) > 3);
                for (unsigned k = 0; k < i; k++)
                        assert_string_not_equal(archive_reason_name(i), archive_reason_name(k));
        }
}
