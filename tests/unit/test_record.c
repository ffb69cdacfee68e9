/* SPDX-License-Identifier: Apache-2.0 */
/* The flight record: what is kept of a step, how old steps make way, and which records outlive their jobs. */
#include "tests.h"

#include "base/user.h"
#include "job/keep/record.h"
#include "proto/metrics.h"

#define UID 1000

static struct users *accounts;

static int setup(void **state) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_OWN] = 32 << 20 };

        return users_new(limits, &accounts);
}

static int teardown(void **state) {
        assert_int_equal(accounts_total(accounts, ACCOUNT_OWN), 0);
        users_free(accounts);
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, teardown)

static struct record *make(uid_t uid, const char *name) {
        struct record *record;
        struct refusal refusal;

        assert_int_equal(record_new(accounts, uid, name, &record, &refusal), 0);
        return record;
}

static void open_step(struct record *record, struct record_step **holder, uint64_t number, uint32_t buckets,
                      uint32_t world) {
        record_open(record, holder,
                    &(struct record_step){ .number = number,
                                           .opened = 1000 * number,
                                           .plan = 3,
                                           .generation = 2,
                                           .world = world,
                                           .n_local = world,
                                           .buckets = buckets });
        assert_non_null(*holder);
}

/* One whole step: rank r of bucket b ready 10 b + r after the opening, the reduction 100 later for 7. */
static void play(struct record *record, uint64_t number, uint32_t buckets, uint32_t world) {
        uint64_t counts[LIMIT_LOCAL] = { 0 }, opened = 1000 * number;
        struct backend_result result = { .n_inputs = world, .sum_squares = 2, .input_nonfinite = counts };
        struct record_step *step;

        open_step(record, &step, number, buckets, world);
        for (uint32_t b = 0; b < buckets; b++) {
                for (uint32_t rank = 0; rank < world; rank++)
                        record_ready(step, b, rank, opened + 10 * b + rank);
                record_start(record, step, b, opened + 10 * b + 100);
                counts[world - 1] = b;
                record_end(record, step, b, opened + 10 * b + 107, opened + 10 * b + 100, &result);
        }
        record_close(record, step, true, opened, opened + 500);
        assert_null(step);
}

TEST(test_what_is_kept_of_a_step) {
        struct record *record = make(UID, "j");
        const struct record_step *step;

        play(record, 1, 2, 3);
        step = record_next(record, 0);
        assert_non_null(step);
        assert_int_equal(step->number, 1);
        assert_int_equal(step->plan, 3);
        assert_int_equal(step->generation, 2);
        assert_int_equal(step->ended - step->opened, 500);
        assert_true(step->committed);
        assert_int_equal(step->kept, 2);
        for (uint32_t b = 0; b < 2; b++) {
                assert_int_equal(record_bucket(step, b)->start, 10 * b + 101);
                assert_int_equal(record_bucket(step, b)->end, 10 * b + 108);
                assert_true(record_bucket(step, b)->sum_squares == 2);
                for (uint32_t rank = 0; rank < 3; rank++) {
                        assert_int_equal(record_ready_times(step, b)[rank], 10 * b + rank + 1);
                        assert_int_equal(record_nonfinite(step, b)[rank], rank == 2 ? b : 0);
                }
        }
        assert_null(record_next(record, 1));
        assert_int_equal(record->totals.committed, 1);
        assert_int_equal(record->totals.step_us, 500);
        assert_int_equal(record->totals.reduce_us, 14);
        assert_int_equal(record->totals.class[0], 2);
        assert_int_equal(record->totals.wait_us, 2 * (100 + 99 + 98));
        assert_int_equal(record->totals.late_us[0], 0);
        assert_int_equal(record->totals.late_us[2], 2 * 2);
        record_free(record);
}

/* Checks that the last steps are there in order, whole, and apart from each other, whatever their sizes. */
static void check(const struct record *record, uint64_t last) {
        const struct record_step *step;
        uint64_t after = 0, numbers = 0;

        while ((step = record_next(record, after)) != NULL) {
                assert_true(after == 0 || step->sequence == after + 1);
                assert_int_equal(step->number, step->sequence);
                assert_true((const uint8_t *)step >= record->ring);
                assert_true((const uint8_t *)step + step->size <= record->ring + RECORD_BYTES);
                for (uint32_t b = 0; b < step->kept; b++) {
                        assert_int_equal(record_bucket(step, b)->end, 10 * b + 108);
                        for (uint32_t rank = 0; rank < step->world; rank++)
                                assert_int_equal(record_ready_times(step, b)[rank], 10 * b + rank + 1);
                }
                after = step->sequence;
                numbers++;
        }
        assert_int_equal(after, last);
        assert_int_equal(numbers, record->n);
}

TEST(test_small_steps_are_kept_by_number) {
        struct record *record = make(UID, "j");

        for (uint64_t number = 1; number <= 3 * RECORD_STEPS + 5; number++) {
                play(record, number, 3, 2);
                check(record, number);
        }
        assert_int_equal(record->n, RECORD_STEPS);
        record_free(record);
}

TEST(test_large_steps_are_kept_by_bytes) {
        struct record *record = make(UID, "j");

        for (uint64_t number = 1; number <= 2000; number++) {
                play(record, number, 1 + (uint32_t)(number * 7919 % 400),
                     1 + (uint32_t)(number * 104729 % 9));
                check(record, number);
        }
        assert_in_range(record->n, 4, RECORD_STEPS - 1);
        record_free(record);
}

TEST(test_a_huge_step_is_cut) {
        struct record *record = make(UID, "j");
        const struct record_step *step;

        play(record, 1, LIMIT_BUCKETS, LIMIT_LOCAL);
        check(record, 1);
        step = record_next(record, 0);
        assert_int_equal(step->buckets, LIMIT_BUCKETS);
        assert_in_range(step->kept, 1, LIMIT_BUCKETS - 1);
        assert_true(step->size <= RECORD_STEP_BYTES);
        assert_int_equal(record->totals.class[0], LIMIT_BUCKETS);
        record_free(record);
}

/* A step that stays open while another plan goes on: it is pushed out like any other, and writing to it
 * ends. */
TEST(test_an_open_step_is_pushed_out) {
        struct backend_result result = { .n_inputs = 0 };
        struct record *record = make(UID, "j");
        struct record_step *open;

        open_step(record, &open, 1, 1, 1);
        assert_int_equal(record_next(record, 0)->ended, 0);
        for (uint64_t number = 2; number <= RECORD_STEPS; number++)
                play(record, number, 1, 1);
        assert_non_null(open);
        play(record, RECORD_STEPS + 1, 1, 1);
        assert_null(open);
        record_ready(open, 0, 0, 5000);
        record_start(record, open, 0, 5000);
        record_end(record, open, 0, 6000, 5000, &result);
        record_close(record, open, true, 1000, 6000);
        check(record, RECORD_STEPS + 1);
        assert_int_equal(record->totals.committed, RECORD_STEPS + 1);
        record_free(record);
}

TEST(test_times_do_not_wrap) {
        struct record *record = make(UID, "j");
        struct record_step *step;

        open_step(record, &step, 1, 1, 2);
        record_ready(step, 0, 0, step->opened + (UINT64_C(1) << 32) - 3);
        record_ready(step, 0, 1, step->opened + (UINT64_C(1) << 40));
        assert_int_equal(record_ready_times(step, 0)[0], UINT32_MAX - 1);
        assert_int_equal(record_ready_times(step, 0)[1], UINT32_MAX);
        record_free(record);
}

TEST(test_it_is_charged_while_the_job_lives) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_OWN] = sizeof(struct record) + 1 };
        struct record *record = make(UID, "j"), *second;
        struct records records;
        struct refusal refusal;

        assert_int_equal(accounts_used(accounts, UID, ACCOUNT_OWN), sizeof(struct record));
        accounts_set_limits(accounts, limits);
        assert_true(record_new(accounts, UID, "k", &second, &refusal) > 0);
        records_init(&records);
        records_keep(&records, record);
        assert_int_equal(accounts_used(accounts, UID, ACCOUNT_OWN), 0);
        records_deinit(&records);
}

TEST(test_ended_records_are_few_and_fair) {
        struct records records;
        struct record *record;
        char name[16], left[256] = "";

        records_init(&records);
        records_keep(&records, NULL);
        records_keep(&records, make(1, "quiet"));
        for (unsigned i = 0; i < 3 * RECORD_ENDED; i++) {
                snprintf(name, sizeof(name), "noise%u", i);
                records_keep(&records, make(2, name));
        }
        list_for_each(record, &records.list, link) {
                assert_true(record->ended);
                strcat(strcat(left, record->name), " ");
        }
        assert_string_equal(left, "quiet noise17 noise18 noise19 noise20 noise21 noise22 noise23 ");
        records_deinit(&records);
        assert_true(list_empty(&records.list));
}

/* A user's full quota of jobs, and what ended jobs have left, in a daemon that stays below 20 MiB. */
TEST_ALONE(test_all_records_are_small) {
        assert_true((64 + RECORD_ENDED) * sizeof(struct record) < 16 << 20);
}

/* The record counts reductions in the classes that the metrics name. */
TEST_ALONE(test_classes_are_those_of_the_metrics) {
        assert_int_equal(metrics_n_classes, RECORD_CLASSES + 1);
        for (unsigned i = 0; i < RECORD_CLASSES; i++)
                assert_int_equal(strtod(metrics_classes[i], NULL) * 1e6 + 0.5, record_class_us[i]);
        assert_string_equal(metrics_classes[RECORD_CLASSES], "+Inf");
}
