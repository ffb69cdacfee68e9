/* SPDX-License-Identifier: Apache-2.0 */
/* What one daemon leaves to the next: marks, results, and that nothing of it is believed that is not whole.
 */
#include "state_fixture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 4u

static struct past *read_it(void) {
        struct past *past;

        assert_int_equal(past_new(state_fd(ours), &past), 0);
        return past;
}

static void done(struct state_plan *plan, uint32_t b, double value, const uint8_t *unused) {
        state_begin(plan, b);
        state_keep(plan, b, value, b, unused);
}

/* What the trace says of a step, as words_unit() reads it. */
enum verdict { PAST_UNKNOWN, PAST_UNTOUCHED, PAST_COMMITTED };

static enum verdict verdict_of(const struct state_plan *plan, uint64_t step) {
        const struct word_step before = { .known = true, .step = step - 1, .launched = 1 };
        const struct word said = { .told = true, .generation = 1 };
        const struct trace trace = past_trace(plan);
        const struct words_unit unit = words_unit(&said, &before, 1, &trace);

        return unit.prepared ? PAST_COMMITTED : unit.opened ? PAST_UNKNOWN : PAST_UNTOUCHED;
}

static enum verdict verdict(uint32_t generation, uint64_t step) {
        struct past *past = read_it();
        enum verdict found = verdict_of(past_find(past, &key, generation, WORLD), step);

        past_free(past);
        return found;
}

TEST(marks_tell_how_far_a_step_was) {
        struct state_plan *plan = state_add(ours, &key, MOST);

        assert_int_equal(verdict(0, 1), PAST_UNKNOWN); /* it is in no generation yet */
        state_generation(plan, 3, WORLD);
        assert_int_equal(verdict(3, 1), PAST_UNTOUCHED);
        assert_int_equal(verdict(2, 1), PAST_UNKNOWN);
        state_open(plan, 1);
        assert_int_equal(verdict(3, 1), PAST_UNTOUCHED);
        state_begin(plan, 0);
        assert_int_equal(verdict(3, 1), PAST_UNKNOWN);
        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, b, b, NULL);
        assert_int_equal(verdict(3, 1), PAST_COMMITTED);
        assert_int_equal(verdict(3, 2), PAST_UNTOUCHED);
        state_open(plan, 2);
        assert_int_equal(verdict(3, 1), PAST_UNKNOWN);
        done(plan, 0, 1, NULL);
        state_open(plan, 0); /* void */
        assert_int_equal(verdict(3, 2), PAST_UNTOUCHED);
        state_generation(plan, 4, WORLD);
        assert_int_equal(verdict(3, 2), PAST_UNKNOWN);
        assert_int_equal(verdict(4, 2), PAST_UNTOUCHED);
}

/* A step begins with no marks, whatever the one before it has left: with those of a committed step it would
 * count as committed from its first moment on, and what is in its arenas as averages. The bug planted:
 * state_open() does not clear the marks. */
TEST(a_step_has_no_marks_of_the_one_before) {
        struct state_plan *plan = state_add(ours, &key, MOST);

        state_generation(plan, 1, WORLD);
        for (uint64_t step = 1; step <= 3; step++) {
                state_open(plan, step);
                assert_int_equal(verdict(1, step), PAST_UNTOUCHED);
                for (uint32_t b = 0; b < BUCKETS; b++) {
                        assert_int_equal(verdict(1, step), b == 0 ? PAST_UNTOUCHED : PAST_UNKNOWN);
                        done(plan, b, b, NULL);
                }
                assert_int_equal(verdict(1, step), PAST_COMMITTED);
        }
        state_open(plan, 4);
        done(plan, 0, 1, NULL);
        state_open(plan, 4); /* void, and tried again */
        assert_int_equal(verdict(1, 4), PAST_UNTOUCHED);
}

TEST(results_come_back) {
        struct state_plan *plan = state_add(ours, &key, MOST);
        const uint8_t maps[BUCKETS][3] = { { 0xff, 0x01 }, { 0x01 }, { 0xab, 0xcd, 0x0e } };
        const struct state_plan *found;
        struct past *past;

        state_generation(plan, 1, WORLD);
        state_open(plan, 1);
        for (uint32_t b = 0; b < BUCKETS; b++)
                done(plan, b, 10.0 * b, b == 1 ? NULL : maps[b]);
        past = read_it();
        found = past_find(past, &key, 1, WORLD);
        assert_non_null(found);
        for (uint32_t b = 0; b < BUCKETS; b++) {
                struct backend_result result;
                const uint8_t *unused;

                past_result(found, b, bucket[b].first, &result, &unused);
                assert_true(result.sum_squares == 10.0 * b);
                assert_int_equal(result.n_inputs, WORLD);
                assert_true(result.input_sum_squares[0] == 10.0 * b + 1 &&
                            result.input_sum_squares[1] == 10.0 * b + 2);
                assert_int_equal(result.input_nonfinite[1], b);
                if (b == 1)
                        assert_null(unused);
                else
                        assert_memory_equal(unused, maps[b], (bucket[b].n + 7) / 8);
        }
        past_free(past);
}

TEST(only_what_is_meant_is_found) {
        struct state_key other[] = { key, key, key, key, key, key };
        struct past *past;

        state_generation(state_add(ours, &key, MOST), 1, WORLD);
        past = read_it();
        other[0].uid++;
        other[1].job = "jobs";
        other[2].incarnation++;
        other[3].plan++;
        other[4].params++;
        other[5].buckets++;
        assert_non_null(past_find(past, &key, 1, WORLD));
        for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
                assert_null(past_find(past, &other[i], 1, WORLD));
        assert_null(past_find(past, &key, 1, WORLD + 1));
        assert_null(past_find(NULL, &key, 1, WORLD));
        past_free(past);
}

/* A bit of each byte turned over: never more than nothing, or the truth. A slot follows the 24
 * bytes of the file's head. It begins with its size and the step, which may be any; padding ends its head. */
TEST(damage_is_found_out) {
        struct state_plan *plan = state_add(ours, &key, MOST);
        uint64_t bytes = 24 + state_bytes(&key, MOST);
        uint64_t head = 24 + state_bytes(&(struct state_key){ 0 }, MOST);
        int fd = state_fd(ours);

        state_generation(plan, 1, WORLD);
        for (uint64_t at = 0; at < bytes; at++) {
                const struct state_plan *found;
                struct past *past = NULL;
                uint8_t was, is;

                assert_int_equal(pread(fd, &was, 1, (off_t)at), 1);
                is = was ^ 0x80;
                assert_int_equal(pwrite(fd, &is, 1, (off_t)at), 1);
                if (past_new(fd, &past) == 0) {
                        struct backend_result result;
                        const uint8_t *unused;

                        found = past_find(past, &key, 1, WORLD);
                        assert_true(found == NULL || at < 24 || (at >= 32 && at < 40) || at >= head - 8);
                        for (uint32_t b = 0; b < BUCKETS && found != NULL; b++)
                                past_result(found, b, bucket[b].first, &result, &unused);
                        verdict_of(found, 1);
                }
                past_free(past);
                assert_int_equal(pwrite(fd, &was, 1, (off_t)at), 1);
        }
        assert_int_equal(verdict(1, 1), PAST_UNTOUCHED);
}

TEST(a_file_that_ends_early_is_refused) {
        struct past *past;

        state_generation(state_add(ours, &key, MOST), 1, WORLD);
        assert_int_equal(ftruncate(state_fd(ours), (off_t)(24 + state_bytes(&key, MOST) - 1)), 0);
        assert_int_equal(past_new(state_fd(ours), &past), -EPROTO);
}

TEST(room_is_used_again) {
        struct state_plan *plan[40];
        struct stat before, after;

        for (unsigned i = 0; i < 40; i++)
                plan[i] = state_add(ours, &key, MOST);
        fstat(state_fd(ours), &before);
        for (unsigned round = 0; round < 100; round++) {
                unsigned i = (round * 7) % 40;

                state_drop(ours, plan[i]);
                plan[i] = state_add(ours, &key, MOST);
                assert_non_null(plan[i]);
        }
        for (unsigned i = 0; i < 40; i++)
                state_drop(ours, plan[i]);
        assert_int_equal(verdict(0, 1), PAST_UNKNOWN);
        for (unsigned i = 0; i < 40; i++)
                assert_non_null(state_add(ours, &key, MOST));
        fstat(state_fd(ours), &after);
        assert_int_equal(before.st_size, after.st_size);
}

/* In place of many small plans there is room for a large one. */
TEST(room_at_the_end_is_given_back) {
        struct state_key large = key;
        struct state_plan *plan[40];
        struct stat before, after;

        large.params = 65536;
        for (unsigned i = 0; i < 40; i++)
                plan[i] = state_add(ours, &key, MOST);
        fstat(state_fd(ours), &before);
        for (unsigned i = 0; i < 40; i++)
                state_drop(ours, plan[i]);
        assert_non_null(state_add(ours, &large, MOST));
        fstat(state_fd(ours), &after);
        assert_true(after.st_size <= before.st_size);
}

TEST(what_does_not_fit_is_left_out) {
        struct state_key large = key;

        large.params = 65536;
        large.buckets = 16384;
        assert_null(state_add(ours, &large, 256));
        assert_null(state_add(NULL, &key, MOST));
        state_generation(NULL, 1, 1);
        state_open(NULL, 1);
        state_begin(NULL, 0);
        state_done(NULL, 0, 0, NULL, NULL, 0);
        state_drop(ours, NULL);
        assert_non_null(state_add(ours, &key, MOST));
}
