/* SPDX-License-Identifier: Apache-2.0 */
/* Which word was meant by one that is unknown. */
#include "tests.h"

#include "proto/cleanup.h"
#include "proto/spelling.h"

static const char *const commands[] = { "status", "list", "top", "trace", "evict", "resume", "drain", "key" };

static const char *test_spelling_of(const char *word) {
        struct spelling spelling = { .word = word };

        for (size_t i = 0; i < array_size(commands); i++)
                spelling_try(&spelling, commands[i]);
        return spelling.best;
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
                const char *found = test_spelling_of(rows[i].written);

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
                if (test_spelling_of(words[i]))
                        fail_msg("%s is near to %s", words[i], test_spelling_of(words[i]));
        memset(longer, 's', sizeof longer - 1);
        longer[sizeof longer - 1] = '\0';
        assert_null(test_spelling_of(longer));
}

TEST_ALONE(longest_words_are_compared_to_the_end) {
        char a[SPELLING_LONGEST + 2], b[SPELLING_LONGEST + 2];

        memset(a, 'a', sizeof a);
        memset(b, 'a', sizeof b);
        a[SPELLING_LONGEST] = b[SPELLING_LONGEST] = '\0';
        b[SPELLING_LONGEST - 1] = 'b';
        struct spelling spelling = { .word = a };
        spelling_try(&spelling, b);
        assert_ptr_equal(spelling.best, b);
        assert_int_equal(spelling.distance, 1);
        a[SPELLING_LONGEST] = 'a'; /* one letter more than are compared */
        a[SPELLING_LONGEST + 1] = '\0';
        spelling = (struct spelling){ .word = a };
        spelling_try(&spelling, b);
        assert_null(spelling.best);
        spelling = (struct spelling){ .word = b };
        spelling_try(&spelling, a);
        assert_null(spelling.best);
}

TEST_ALONE(nearest_one_wins_and_then_the_first) {
        struct spelling spelling = { .word = "stall_notce" };

        spelling_try(&spelling, "stall_note");
        assert_string_equal(spelling.best, "stall_note");
        assert_int_equal(spelling.distance, 1);
        spelling_try(&spelling, "stall_notice"); /* as far */
        assert_string_equal(spelling.best, "stall_note");
        spelling = (struct spelling){ .word = "stall-notice" };
        spelling_try(&spelling, "small_notice");
        assert_int_equal(spelling.distance, 2);
        spelling_try(&spelling, "stall_notice");
        assert_string_equal(spelling.best, "stall_notice");
        spelling_try(&spelling, "stall-notice");
        assert_string_equal(spelling.best, "stall-notice");
        assert_int_equal(spelling.distance, 0);
}
