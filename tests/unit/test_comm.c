/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator of a job: the collectives that fillers stand for, their wait for a comparison, and the
 * words that nodes compare. */
#include "tests.h"

#include "job/machine/comm.h"

#define TRACK 3u

static bool take(struct comm *comm, enum launch_kind kind, uint64_t sequence, uint64_t index) {
        return comm_take(comm,
                         &(struct action){ .launch = kind, .track = TRACK, .seq = sequence, .index = index },
                         4);
}

static void assert_item(const struct comm *comm, uint64_t sequence, uint32_t track, uint64_t index,
                        bool filler) {
        const struct comm_item *item = comm_item(comm, 0, sequence);

        assert_int_equal(item->track, track);
        assert_int_equal(item->index, index);
        assert_int_equal(item->filler, filler);
}

static int setup(void **state) {
        static struct comm comm;

        memset(&comm, 0, sizeof(comm));
        comm_begin(&comm, 7);
        *state = &comm;
        return 0;
}

#define TEST(name) TEST_OF(name, struct comm *comm, setup, NULL)

TEST(a_filler_stands_for_what_follows) {
        assert_true(take(comm, LAUNCH_PAYLOAD, 1, 0));
        assert_int_equal(comm_next_held(comm, 0, 1), 0);
        assert_true(take(comm, LAUNCH_PAYLOAD, 2, 1));
        for (uint64_t sequence = 3; sequence <= 6; sequence++)
                assert_true(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = sequence }, 0));
        assert_item(comm, 1, TRACK, 0, false);
        assert_item(comm, 2, TRACK, 1, false);
        assert_item(comm, 3, TRACK, 2, true);
        assert_item(comm, 4, TRACK, 3, true);
        assert_item(comm, 5, TRACK, COMM_VOTE, true);
        assert_item(comm, 6, 0, 0, true); /* the comparison of whatever the others have begun */
}

TEST(a_unit_that_has_ended_is_followed_by_a_comparison) {
        for (uint64_t index = 0; index < 4; index++)
                assert_true(take(comm, LAUNCH_PAYLOAD, 1 + index, index));
        assert_true(take(comm, LAUNCH_VOTE, 5, 0));
        assert_item(comm, 5, TRACK, COMM_VOTE, false);
        comm_next_held(comm, 0, 1);
        assert_true(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = 6 }, 0));
        assert_item(comm, 6, 0, 0, true);
}

/* On a lane that plans share the vote of one need not be done. */
TEST(a_filler_stands_for_what_the_latest_unit_has_left) {
        struct action other = { .launch = LAUNCH_PAYLOAD, .track = TRACK + 1, .seq = 4 };

        for (uint64_t index = 0; index < 2; index++)
                assert_true(take(comm, LAUNCH_PAYLOAD, 1 + index, index));
        comm_next_held(comm, 0, 2);
        assert_true(take(comm, LAUNCH_VOTE, 3, 0));
        assert_true(comm_take(comm, &other, 2));
        assert_false(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = 5 }, 0));
        assert_int_equal(comm_next_held(comm, 0, 3), 0);
        assert_int_equal(comm_next_held(comm, 0, 4), 5);
        assert_item(comm, 3, TRACK, COMM_VOTE, false);
        assert_item(comm, 4, TRACK + 1, 0, false);
        assert_item(comm, 5, TRACK + 1, 1, true);
}

TEST(fillers_wait_for_the_comparison) {
        assert_true(take(comm, LAUNCH_PAYLOAD, 1, 0));
        for (uint64_t sequence = 2; sequence <= 5; sequence++)
                assert_false(
                        comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = sequence }, 0));
        assert_int_equal(comm_next_held(comm, 0, 1), 2);
        assert_int_equal(comm_next_held(comm, 0, 1), 3);
        assert_int_equal(comm_next_held(comm, 0, 1), 4);
        assert_int_equal(comm_next_held(comm, 0, 1), 5);
        assert_int_equal(comm_next_held(comm, 0, 1), 0);
        assert_item(comm, 5, TRACK, COMM_VOTE, true);
        assert_true(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = 6 }, 0));
}

/* A broken communicator launches no filler that it has held. The next communicator begins anew. */
TEST(a_broken_communicator_launches_nothing_held) {
        assert_true(take(comm, LAUNCH_PAYLOAD, 1, 0));
        assert_false(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = 2 }, 0));
        comm_set_state(comm, COMM_BROKEN);
        assert_int_equal(comm_next_held(comm, 0, 1), 0);
        assert_int_equal(comm_next_held(comm, 0, 1), 0);
        comm_begin(comm, 8);
        assert_true(take(comm, LAUNCH_PAYLOAD, 1, 0));
}

TEST(another_communicator_begins_anew) {
        assert_true(take(comm, LAUNCH_PAYLOAD, 1, 0));
        comm_set_state(comm, COMM_BROKEN);
        assert_false(take(comm, LAUNCH_PAYLOAD, 2, 1));
        comm_begin(comm, 8);
        assert_int_equal(comm->old_id, 7);
        assert_int_equal(comm->id, 8);
        assert_true(comm_take(comm, &(struct action){ .launch = LAUNCH_FILLER, .seq = 1 }, 0));
        assert_item(comm, 1, 0, 0, true);
}

/* Compares words as an engine does with the values of a vote. */
static bool compare(struct comm_words *ret, unsigned n, const struct comm_words *const *words) {
        uint64_t value[ENGINE_VALUES], all[ENGINE_VALUES];

        memset(all, 0xff, sizeof(all));
        for (unsigned node = 0; node < n; node++) {
                comm_pack(value, words[node]);
                for (unsigned i = 0; i < ENGINE_VALUES; i++)
                        all[i] = value[i] < all[i] ? value[i] : all[i];
        }
        return comm_unpack(all, ret);
}

TEST_ALONE(words_are_equal_or_not) {
        struct comm_words a = { .word = { 5, 0, UINT64_MAX }, .largest = 2 }, b = a, heard;

        assert_true(compare(&heard, 2, (const struct comm_words *[]){ &a, &b }));
        assert_memory_equal(heard.word, a.word, sizeof(a.word));
        assert_memory_equal(heard.most, a.word, sizeof(a.word));
        assert_int_equal(heard.largest, 2);
        b.largest = 9;
        assert_true(compare(&heard, 3, (const struct comm_words *[]){ &a, NULL, &b }));
        assert_int_equal(heard.largest, 9);
        assert_int_equal(heard.word[2], UINT64_MAX);
        for (unsigned i = 0; i < COMM_WORDS; i++) {
                b = a;
                b.word[i] ^= 1;
                assert_false(compare(&heard, 2, (const struct comm_words *[]){ &a, &b }));
                assert_false(compare(&heard, 2, (const struct comm_words *[]){ &b, &a }));
                assert_true((heard.word[i] ^ heard.most[i]) == 1 && heard.word[i] < heard.most[i]);
        }
}

TEST_ALONE(a_filler_agrees_with_nobody) {
        struct comm_words a = { .word = { 0 } }, heard;
        uint64_t zeros[ENGINE_VALUES] = { 0 };

        assert_true(compare(&heard, 1, (const struct comm_words *[]){ &a }));
        assert_false(comm_unpack(zeros, &heard));
}

/* ---- communicators of two parts ---- */

static void add_both(struct comm *comm) {
        comm_add(comm, 0);
        comm_add(comm, 1);
}

TEST(what_both_parts_publish_is_one_table) {
        static const struct comm_table published[COMM_PARTS] = { { "first", 5 }, { "2nd", 3 } };
        struct comm_table parts[COMM_PARTS];
        size_t bytes;

        add_both(comm);
        for (uint32_t earlier = 0; earlier < COMM_PARTS; earlier++) {
                assert_null(comm_join(comm, earlier, published[earlier], &bytes));
                void *joined = comm_join(comm, 1 - earlier, published[1 - earlier], &bytes);
                assert_non_null(joined);
                assert_int_equal(bytes, 12);
                assert_memory_equal(joined, "\x05\0\0\0first2nd", 12);
                assert_int_equal(comm_split((struct comm_table){ joined, bytes }, parts), 0);
                for (uint32_t part = 0; part < COMM_PARTS; part++) {
                        assert_int_equal(parts[part].bytes, published[part].bytes);
                        assert_memory_equal(parts[part].start, published[part].start, parts[part].bytes);
                }
                free(joined);
        }
}

TEST(tables_that_are_too_large_are_not_joined) {
        static char large[ENGINE_TABLE - 7];
        size_t bytes;

        assert_null(comm_join(comm, 0, (struct comm_table){ "2nd", 3 }, &bytes));
        void *joined = comm_join(comm, 1, (struct comm_table){ large, sizeof(large) }, &bytes);
        assert_non_null(joined);
        assert_int_equal(bytes, ENGINE_TABLE);
        free(joined);
        assert_null(comm_join(comm, 0, (struct comm_table){ "2nds", 4 }, &bytes));
        assert_null(comm_join(comm, 1, (struct comm_table){ large, sizeof(large) }, &bytes));
}

TEST_ALONE(a_table_without_two_parts_is_refused) {
        struct comm_table parts[COMM_PARTS];

        assert_int_equal(comm_split((struct comm_table){ "\0\0\0", 3 }, parts), -EINVAL);
        assert_int_equal(comm_split((struct comm_table){ "\1\0\0\0", 4 }, parts), -EINVAL);
        assert_int_equal(comm_split((struct comm_table){ "\xff\xff\xff\xff!", 5 }, parts), -EINVAL);
        assert_int_equal(comm_split((struct comm_table){ "\1\0\0\0!", 5 }, parts), 0);
        assert_int_equal(parts[0].bytes, 1);
        assert_int_equal(parts[1].bytes, 0);
}

TEST(it_is_told_once_whether_both_parts_work) {
        add_both(comm);
        assert_false(comm_built(comm, 1, true));
        assert_true(comm_built(comm, 0, true));
        assert_true(comm->told);
        comm_begin(comm, 9);
        add_both(comm);
        assert_true(comm_built(comm, 1, false));
        assert_false(comm_built(comm, 0, true));
        assert_false(comm_built(comm, 0, false));
}

/* With what only one of them has published. */
TEST(it_has_ended_when_both_parts_have) {
        size_t bytes;

        add_both(comm);
        assert_null(comm_join(comm, 1, (struct comm_table){ "2nd", 3 }, &bytes));
        assert_false(comm_ended(comm, 1));
        assert_int_equal(comm->id, 7);
        assert_true(comm_ended(comm, 0));
        assert_int_equal(comm->id, 0);
        comm_begin(comm, 9);
        comm_add(comm, 0);
        assert_true(comm_ended(comm, 0));
}
