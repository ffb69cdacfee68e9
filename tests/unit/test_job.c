/* SPDX-License-Identifier: Apache-2.0 */
/* The job layer, where a script has no words: what it keeps in memory, what it asks the backend for, several
 * jobs or backends. All other cases are in scripts/jobs.txt, held.txt and operations.txt. */
#include "fixed_fixture.h"
#include "tests.h"

#include <sys/syscall.h>

#include "job/watch/stall.h"
#include "proto/names.h"

/* Opens a plan that cannot be: its parameter has no name. */
static int spoil(struct fixture *f, uint32_t rank, uint32_t ordinal) {
        struct offer begin = offer_of(ordinal, 1);
        struct offer_param param = { 0 };
        int r = plan_begin(f->member[rank], &begin, &f->refusal);
        return r == 0 ? plan_params(f->member[rank], ordinal, &param, 1, &f->refusal) : r;
}

JOB_TEST(failed_plans_do_not_pile_up) {
        uint64_t before;
        uint32_t ordinal = 0;

        form(f, 2);
        before = accounts_total(f->accounts, ACCOUNT_OWN);
        while (spoil(f, 1, ordinal) == WIRE__CODE__INVALID && ordinal < 1000)
                ordinal++;
        assert_int_equal(spoil(f, 1, ordinal), WIRE__CODE__QUOTA);
        assert_true(accounts_total(f->accounts, ACCOUNT_OWN) >= before + ordinal * sizeof(struct plan));
        for (uint32_t i = 0; i < ordinal; i++)
                assert_int_equal(spoil(f, 0, i), WIRE__CODE__INVALID);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_OWN), before);
}

/* Ordinals do not wrap. */
JOB_TEST(the_last_ordinal_is_no_plans) {
        struct offer begin = offer_of(UINT32_MAX, 1);

        form(f, 1);
        assert_int_equal(plan_begin(f->member[0], &begin, &f->refusal), WIRE__CODE__INVALID);
        begin.plan--;
        assert_int_equal(plan_begin(f->member[0], &begin, &f->refusal), 0);
        assert_int_equal(f->member[0]->next_plan, UINT32_MAX);
}

JOB_TEST(a_time_out_may_be_as_long_as_it_likes) {
        struct offer begin = offer_of(0, 1);
        const struct plan *plan;

        form(f, 2);
        begin.timeout = clock_from_ms(UINT64_MAX / 1000 + 2);
        assert_int_equal(plan_begin(f->member[0], &begin, &f->refusal), 0);
        plan = plan_find(f->member[0]->job, 0);
        assert_true(plan->part[0].deadline > UINT64_MAX / 8);
}

/* The memory of steps is allocated before, so that a lack of it neither fails a step nor evicts a member. */
JOB_TEST(what_steps_need_is_there_from_the_agreement_on) {
        const struct plan *plan;
        const unsigned char *room[2];

        form(f, 2);
        agree(f, 2);
        plan = plan_find(f->member[0]->job, 0);
        assert_int_equal(plan->charge.amount, buckets_bytes(plan->reference, &f->fake.backend, 2));
        assert_true(plan->charge.amount >= 2 * (sizeof(struct bucket) + 2 * FAKE_ROOM));
        for (unsigned b = 0; b < 2; b++) /* a byte of it is the map of what is absent */
                assert_true((uintptr_t)plan->bucket[b].room > (uintptr_t)plan->bucket[b].absent);
        for (uint64_t step = 1; step <= 2; step++) {
                all_ready(f, 2, step, 0);
                all_ready(f, 2, step, 1);
                assert_int_equal(f->fake.n_tasks, 2);
                for (unsigned i = 0; i < 2; i++) {
                        assert_non_null(f->fake.task[i].task.room);
                        assert_int_equal((uintptr_t)f->fake.task[i].task.room % _Alignof(max_align_t), 0);
                        assert_true(step == 1 || room[i] == f->fake.task[i].task.room);
                        room[i] = f->fake.task[i].task.room;
                }
                assert_true(room[1] >= room[0] + 2 * FAKE_ROOM);
                fake_end_one(&f->fake);
                fake_end_one(&f->fake);
        }
        assert_heard("bucket 0;bucket 1;committed 1;bucket 0;bucket 1;committed 2;");
}

/* A bucket with a value that is not finite is looked through before anybody hears of it. */
JOB_TEST(a_nonfinite_value_is_searched_for) {
        const struct nonfinite *blame;

        form(f, 2);
        agree(f, 2);
        blame = &f->member[0]->job->blame;
        all_ready(f, 2, 1, 1);
        f->fake.counts[1] = 3;
        fake_end_one(&f->fake); /* the reduction */
        assert_heard("");
        assert_int_equal(f->fake.n_tasks, 1);
        assert_int_equal(f->fake.task[0].task.reduce, WIRE__REDUCE__REDUCE_NONE);
        assert_true(f->fake.task[0].task.find);
        assert_int_equal(f->fake.task[0].input[0].offset, 4096);
        assert_int_equal(f->fake.task[0].task.elements, 1);
        f->fake.counts[0] = 1;
        fake_end_one(&f->fake); /* the search */
        assert_heard("bucket 1;");
        assert_int_equal(blame->step, 1);
        assert_int_equal(blame->rank, 1);
        assert_int_equal(blame->ranks, 1);
        assert_int_equal(blame->count, 3);
        assert_string_equal(blame->parameter, "b");
        all_ready(f, 2, 1, 0); /* the same burst */
        fake_end_one(&f->fake);
        assert_heard("bucket 0;committed 1;");
        assert_int_equal(blame->bucket, 1);
        assert_int_equal(f->member[0]->job->nonfinite, 3 + 4);
        assert_int_equal(f->member[0]->job->record->totals.nonfinite_steps, 1);
}

static void finite_steps(struct fixture *f, uint64_t from, unsigned n) {
        f->fake.inline_results = true;
        f->fake.counts[0] = f->fake.counts[1] = 0;
        for (uint64_t step = from; step < from + n; step++)
                for (uint32_t bucket = 0; bucket < 2; bucket++)
                        all_ready(f, 2, step, bucket);
        heard[0] = '\0';
}

JOB_TEST(a_burst_ends_after_quiet_steps) {
        const struct nonfinite *blame;

        form(f, 2);
        agree(f, 2);
        blame = &f->member[0]->job->blame;
        for (unsigned turn = 0; turn < 2; turn++) { /* 99 steps are not enough, 100 are */
                uint64_t step = turn * 100 + 1;

                f->fake.inline_results = true;
                f->fake.counts[0] = turn + 1;
                all_ready(f, 2, step, 0);
                all_ready(f, 2, step, 1);
                assert_int_equal(blame->step, 1);
                assert_int_equal(blame->count, 1);
                assert_string_equal(blame->parameter, "a");
                finite_steps(f, step + 1, turn == 0 ? NONFINITE_QUIET - 1 : NONFINITE_QUIET);
        }
        f->fake.counts[0] = 9;
        all_ready(f, 2, 202, 1);
        assert_int_equal(blame->step, 202);
        assert_int_equal(blame->count, 9);
        assert_string_equal(blame->parameter, "b");
}

/* Half a character is no text. */
JOB_TEST(a_long_fault_is_cut) {
        char fault[512] = "";
        const char *told;

        for (unsigned i = 0; i < 150; i++)
                strcat(fault, "\xc3\xa4");
        form(f, 2);
        member_note_fault(f->member[1], fault + 1);
        member_note_fault(f->member[1], fault);
        told = f->member[1]->fault;
        assert_true(strlen(told) > 100 && strlen(told) < 300);
        assert_true(utf8_valid(told, strlen(told)));
}

JOB_TEST(jobs_are_named_with_or_without_their_owner) {
        assert_true(job_is_named("j", 1000, "j"));
        assert_true(job_is_named("1000/j", 1000, "j"));
        assert_false(job_is_named("100/j", 1000, "j"));
        assert_false(job_is_named("10000/j", 1000, "j"));
        assert_false(job_is_named("1000/", 1000, "j"));
        assert_false(job_is_named("/j", 1000, "j"));
        assert_false(job_is_named("", 1000, "j"));
}

JOB_TEST(whoever_is_missing_is_named) {
        struct looks looks = { .marks = 2 };
        struct job_wait waits[4];

        form(f, 3);
        agree(f, 3);
        assert_int_equal(job_waits(f->member[0]->job, waits, 4), 0);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        assert_int_equal(ready(f, 2, 1, 0), 0);
        assert_int_equal(job_waits(f->member[0]->job, waits, 4), 1);
        assert_ptr_equal(waits[0].member, f->member[1]);
        assert_int_equal(waits[0].kind, WAIT_STEP);
        assert_int_equal(waits[0].bucket, 0);
        assert_string_equal(plan_wait_parameter(&waits[0], &looks), "a");
        looks.marks = 0;
        assert_string_equal(plan_wait_parameter(&waits[0], &looks), "");
}

/* Neither that of a step which was paused, nor that of one which was held first, and paused before it was
 * released. */
JOB_TEST(time_that_is_held_is_no_part_of_a_step) {
        struct plan *plan;
        uint64_t before;
        struct job *job;

        form(f, 2);
        agree(f, 2);
        job = f->member[0]->job;
        plan = plan_find(job, 0);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        before = plan->opened;
        job_pause(job);
        plan->opened -= USEC_PER_SEC;
        job->paused_at -= USEC_PER_SEC;
        job_resume(job);
        assert_true(plan->opened >= before);
        for (unsigned bucket = 0; bucket < 2; bucket++)
                assert_int_equal(ready(f, 1, 1, bucket), 0);
        assert_int_equal(ready(f, 0, 1, 1), 0);
        fake_end_one(&f->fake);
        fake_end_one(&f->fake);
        jobs_hold(f->jobs, true);
        assert_int_equal(ready(f, 0, 2, 0), 0);
        before = plan->opened;
        plan->opened -= USEC_PER_SEC;
        job_pause(job);
        jobs_hold(f->jobs, false);
        job_resume(job);
        assert_true(plan->opened >= before);
}

static int call(struct fixture *f, uint32_t rank, unsigned kind) {
        return operation_call(f->member[rank], 20 + rank,
                              &(struct operation_request){ .kind = kind,
                                                           .dtype = WIRE__DTYPE__F32,
                                                           .reduce = WIRE__REDUCE__SUM,
                                                           .bytes = 64,
                                                           .output = 32768 },
                              &f->refusal);
}

/* Their memory and their tasks are all of one backend, which need not be that of plans. */
JOB_TEST(operations_may_have_a_backend_of_their_own) {
        struct fake_backend other;

        fake_backend_init(&other, f->jobs);
        f->jobs->config.staging = &other.backend;
        form(f, 2);
        agree(f, 2);
        assert_int_equal(f->fake.n_arenas, 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(staging_ask(f->member[rank], 11, &f->refusal), 0);
                assert_int_equal(staging_attach(f->member[rank], 12, &f->refusal), 0);
        }
        assert_int_equal(other.n_arenas, 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(call(f, rank, WIRE__OPERATION_KIND__ALLREDUCE), 0);
                assert_int_equal(ready(f, rank, 1, 0), 0);
        }
        assert_int_equal(other.n_tasks, 1);
        assert_int_equal(f->fake.n_tasks, 1);
        fake_end_one(&other);
        assert_heard("operation 0 0;operation 1 0;");
        fake_end_one(&f->fake);
        assert_heard("bucket 0;");
        for (uint32_t rank = 0; rank < 2; rank++)
                member_gone(f->member[rank], WIRE__CAUSE__CLOSED);
        pass(f);
        assert_int_equal(other.n_arenas, 0);
        fake_backend_close(&other);
        assert_int_equal(f->fake.n_arenas, 0);
}

/* A stall of one job must not make the results of others wait for the notices of many. */
JOB_TEST(jobs_that_stall_together_are_told_one_after_the_other) {
        static const char *const names[] = { "i", "j", "k" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                form_named(f, names[i], 2);
                assert_int_equal(call(f, 0, WIRE__OPERATION_KIND__BARRIER), 0);
        }
        f->jobs->config.stall_notice = 0;
        f->stall_takes = 5 * USEC_PER_MSEC; /* longer than a tick has for it */
        assert_int_equal(loop_run(f->loop), 0);
        assert_heard("stall i 1;");
        assert_int_equal(loop_run(f->loop), 0);
        assert_heard("stall j 1;");
        assert_int_equal(loop_run(f->loop), 0);
        assert_heard("stall k 1;");
        f->stall_takes = 0;
}

static unsigned reads_of_pages;

/* In the place of the one of the C library. */
ssize_t pread(int fd, void *to, size_t size, off_t offset) {
        reads_of_pages++;
        return syscall(SYS_pread64, fd, to, size, offset);
}

JOB_TEST(a_stall_that_has_been_told_is_not_looked_into_again) {
        uint64_t now;
        unsigned reads;

        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        now = clock_now();
        reads = reads_of_pages;
        stall_check(f->member[0]->job, now);
        assert_int_equal(reads_of_pages, reads);
        stall_check(f->member[0]->job, now + 61 * USEC_PER_SEC);
        assert_heard("stall j 1;");
        assert_true(reads_of_pages > reads);
        reads = reads_of_pages;
        stall_check(f->member[0]->job, now + 62 * USEC_PER_SEC);
        assert_int_equal(reads_of_pages, reads);
}
