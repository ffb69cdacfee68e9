/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the job layer outside steps, and the limit on waits for a member. */
#include <sys/syscall.h>

#include "fixed_fixture.h"
#include "job/watch/stall.h"
#include "tests.h"

static int call(struct fixture *f, uint32_t rank, uint64_t sequence, unsigned kind, uint64_t bytes) {
        return operation_call(f->member[rank], 20 + rank,
                              &(struct operation_request){
                                      .sequence = sequence,
                                      .kind = kind,
                                      .dtype = WIRE__DTYPE__F32,
                                      .reduce = WIRE__REDUCE__SUM,
                                      .bytes = bytes,
                                      .output = 32768,
                              },
                              &f->refusal);
}

static void give_staging(struct fixture *f, uint32_t world) {
        for (uint32_t rank = 0; rank < world; rank++) {
                assert_int_equal(staging_ask(f->member[rank], 11, &f->refusal), 0);
                assert_int_equal(staging_attach(f->member[rank], 12, &f->refusal), 0);
                assert_int_equal(staging_ask(f->member[rank], 11, &f->refusal), WIRE__CODE__STATE);
        }
}

JOB_TEST(operations_wait_for_all_and_run) {
        static const unsigned tasks[] = { 0, 0, 1, 2, 2, 1 };
        char want[64];

        form(f, 2);
        /* no staging yet */
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), WIRE__CODE__STATE);
        give_staging(f, 2);
        for (unsigned kind = WIRE__OPERATION_KIND__BARRIER; kind <= WIRE__OPERATION_KIND__ALLREDUCE; kind++) {
                uint64_t sequence = kind - 1;

                assert_int_equal(call(f, 1, sequence, kind, 128), 0);
                assert_int_equal(call(f, 1, sequence, kind, 128), WIRE__CODE__STATE); /* one at a time */
                assert_heard("");
                assert_int_equal(call(f, 0, sequence, kind, 128), 0);
                assert_int_equal(f->fake.n_tasks, tasks[kind]);
                end_tasks(f);
                snprintf(want, sizeof(want), "operation 0 %u;operation 1 %u;", kind - 1, kind - 1);
                assert_heard(want);
        }
}

/* Their memory and their tasks are all of one backend, which need not be that of plans. */
JOB_TEST(operations_may_have_a_backend_of_their_own) {
        struct fake_backend other;

        fake_backend_init(&other, f->jobs);
        f->jobs->config.staging = &other.backend;
        form(f, 2);
        agree(f, 2);
        assert_int_equal(f->fake.n_arenas, 2);
        give_staging(f, 2);
        assert_int_equal(other.n_arenas, 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(call(f, rank, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), 0);
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

JOB_TEST(different_operations_fail_for_all_and_the_next_one_works) {
        form(f, 3);
        give_staging(f, 3);
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), 0);
        assert_int_equal(call(f, 1, 0, WIRE__OPERATION_KIND__ALLREDUCE, 128), WIRE__CODE__OPERATION_MISMATCH);
        assert_int_equal(f->refusal.rank, 1);
        assert_heard("refused 0 20 31;");
        /* before the third has heard of it */
        assert_int_equal(call(f, 0, 1, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_int_equal(call(f, 2, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), WIRE__CODE__OPERATION_MISMATCH);
        assert_int_equal(call(f, 1, 1, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_heard("");
        assert_int_equal(call(f, 2, 1, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_heard("operation 0 1;operation 1 1;operation 2 1;");
}

static void join_for_generations(struct fixture *f, uint32_t rank) {
        struct job_join join = join_request(f, "j", rank, 2, 0);

        join.membership.grace = 3600 * USEC_PER_SEC;
        assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        pass(f);
}

JOB_TEST(what_failed_is_forgotten_in_the_next_generation) {
        join_for_generations(f, 0);
        join_for_generations(f, 1);
        give_staging(f, 2);
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_int_equal(call(f, 1, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), WIRE__CODE__OPERATION_MISMATCH);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        join_for_generations(f, 1);
        heard[0] = '\0';
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_int_equal(call(f, 1, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_heard("operation 0 0;operation 1 0;");
}

/* The parts have the same length, but the operations do not. */
JOB_TEST(parts_of_different_operations_are_told_apart) {
        struct operation_request part = { .kind = WIRE__OPERATION_KIND__ALLREDUCE,
                                          .dtype = WIRE__DTYPE__F32,
                                          .reduce = WIRE__REDUCE__SUM,
                                          .bytes = 64,
                                          .total = 128,
                                          .output = 32768 };

        form(f, 2);
        give_staging(f, 2);
        assert_int_equal(operation_call(f->member[0], 20, &part, &f->refusal), 0);
        part.total = 192;
        assert_int_equal(operation_call(f->member[1], 21, &part, &f->refusal),
                         WIRE__CODE__OPERATION_MISMATCH);
        assert_heard("refused 0 20 31;");
}

JOB_TEST(who_is_far_behind_fails_each_operation_that_failed) {
        form(f, 3);
        give_staging(f, 3);
        for (uint64_t sequence = 0; sequence < 2; sequence++) {
                assert_int_equal(call(f, 0, sequence, WIRE__OPERATION_KIND__ALLREDUCE, 64), 0);
                assert_int_equal(call(f, 1, sequence, WIRE__OPERATION_KIND__ALLREDUCE, 128),
                                 WIRE__CODE__OPERATION_MISMATCH);
        }
        assert_int_equal(call(f, 0, 2, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_int_equal(call(f, 1, 2, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        heard[0] = '\0';
        for (uint64_t sequence = 0; sequence < 2; sequence++)
                assert_int_equal(call(f, 2, sequence, WIRE__OPERATION_KIND__BARRIER, 0),
                                 WIRE__CODE__OPERATION_MISMATCH);
        assert_heard("");
        assert_int_equal(call(f, 2, 2, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_heard("operation 0 2;operation 1 2;operation 2 2;");
}

JOB_TEST(an_operation_does_not_wait_for_ever) {
        struct job *job;
        uint64_t now;

        form(f, 2);
        job = f->member[0]->job;
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        now = clock_now();
        stall_check(job, now);
        assert_false(job->operation.stalled.told);
        stall_check(job, now + 61 * USEC_PER_SEC);
        assert_true(job->operation.stalled.told);
        assert_heard("stall j 1;");
        stall_check(job, now + 62 * USEC_PER_SEC);
        assert_heard("");
        assert_int_equal(call(f, 1, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        assert_int_equal(call(f, 1, 1, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        heard[0] = '\0';
        now = clock_now();
        stall_check(job, now + 61 * USEC_PER_SEC);
        assert_heard("stall j 0;");
        stall_check(job, now + 3601 * USEC_PER_SEC);
        assert_heard("evict 0;");
}

JOB_TEST(a_stall_after_an_operation_that_failed_is_told) {
        struct job *job;

        form(f, 2);
        give_staging(f, 2);
        job = f->member[0]->job;
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        stall_check(job, clock_now() + 61 * USEC_PER_SEC);
        assert_heard("stall j 1;");
        assert_int_equal(call(f, 1, 0, WIRE__OPERATION_KIND__ALLREDUCE, 64), WIRE__CODE__OPERATION_MISMATCH);
        assert_heard("refused 0 20 31;");
        assert_int_equal(call(f, 0, 1, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        stall_check(job, clock_now() + 61 * USEC_PER_SEC);
        assert_heard("stall j 1;");
}

/* A stall of one job must not make the results of others wait for the notices of many. */
JOB_TEST(jobs_that_stall_together_are_told_one_after_the_other) {
        static const char *const names[] = { "i", "j", "k" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                form_named(f, names[i], 2);
                assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
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

JOB_TEST(wrong_operations_are_refused) {
        form(f, 2);
        give_staging(f, 2);
        /* out of sequence */
        assert_int_equal(call(f, 0, 1, WIRE__OPERATION_KIND__BARRIER, 0), WIRE__CODE__STATE);
        assert_int_equal(call(f, 0, 0, 99, 64), WIRE__CODE__INVALID);
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, 63), WIRE__CODE__INVALID);
        /* behind offset 32768 */
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, 65536), WIRE__CODE__INVALID);
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, UINT64_MAX - 63),
                         WIRE__CODE__INVALID);
        /* two parts do not fit */
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLGATHER, 32768), WIRE__CODE__INVALID);
        /* overlap */
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__ALLREDUCE, 33024), WIRE__CODE__INVALID);
}

JOB_TEST(an_operation_that_waits_for_a_lost_member_fails) {
        form(f, 2);
        assert_int_equal(call(f, 0, 0, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("refused 0 20 35;lost 1;");
}
