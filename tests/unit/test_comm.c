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
