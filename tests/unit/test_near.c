/* SPDX-License-Identifier: Apache-2.0 */
/* Which word was meant by one that is unknown. */
#include "tests.h"

#include <string.h>

#include "proto/cleanup.h"
#include "proto/near.h"

static const char *const commands[] = { "status", "list", "top", "trace", "evict", "resume", "drain", "key" };

static const char *test_near_of(const char *word) {
        struct near near = { .word = word };

        for (size_t i = 0; i < array_size(commands); i++)
                near_try(&near, commands[i]);
        return near.best;
}

TEST_ALONE(mistakes_of_each_kind_are_found) {
        static const struct {
                const char *written, *meant;
        } rows[] = {
                { "statsu", "status" },                          /* swapped */
                { "sttaus", "status" }, { "statuss", "status" }, /* one too many */
                { "statu", "status" },                           /* one left out */
                { "stetus", "status" },                          /* another */
                { "STATUS", "status" }, { "Evcit", "evict" },    { "STAT", "status" },
                { "stat", "status" }, /* only the beginning */
                { "tpo", "top" },       { "ky", "key" },         { "lsit", "list" },
                { "stauts", "status" }, { "ist", "list" },       { "tracee", "trace" },
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                const char *found = test_near_of(rows[i].written);

                if (!found)
                        fail_msg("nothing is near to %s", rows[i].written);
                assert_string_equal(found, rows[i].meant);
        }
}

TEST_ALONE(what_is_too_far_is_not_guessed) {
        static const char *const words[] = {
                "", "x", "k", "zz", "abc", "frobnicate", "jobs", "st", "sxxxus"
        };
        char longer[200];

        for (size_t i = 0; i < array_size(words); i++)
                if (test_near_of(words[i]))
                        fail_msg("%s is near to %s", words[i], test_near_of(words[i]));
        memset(longer, 's', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        assert_null(test_near_of(longer));
}

TEST_ALONE(longest_words_are_compared_to_the_end) {
        char a[NEAR_LONGEST + 2], b[NEAR_LONGEST + 2];

        memset(a, 'a', sizeof a);
        memset(b, 'a', sizeof b);
        a[NEAR_LONGEST] = b[NEAR_LONGEST] = '\0';
        b[NEAR_LONGEST - 1] = 'b';
        struct near near = { .word = a };
        near_try(&near, b);
        assert_ptr_equal(near.best, b);
        assert_int_equal(near.distance, 1);
        a[NEAR_LONGEST] = 'a'; /* one letter more than are compared */
        a[NEAR_LONGEST + 1] = '\0';
        near = (struct near){ .word = a };
        near_try(&near, b);
        assert_null(near.best);
        near = (struct near){ .word = b };
        near_try(&near, a);
        assert_null(near.best);
}

TEST_ALONE(nearest_one_wins_and_then_the_first) {
        struct near near = { .word = "stall_notce" };

        near_try(&near, "stall_note");
        assert_string_equal(near.best, "stall_note");
        assert_int_equal(near.distance, 1);
        near_try(&near, "stall_notice"); /* as far */
        assert_string_equal(near.best, "stall_note");
        near = (struct near){ .word = "stall-notice" };
        near_try(&near, "small_notice");
        assert_int_equal(near.distance, 2);
        near_try(&near, "stall_notice");
        assert_string_equal(near.best, "stall_notice");
        near_try(&near, "stall-notice");
        assert_string_equal(near.best, "stall-notice");
        assert_int_equal(near.distance, 0);
}
