/* SPDX-License-Identifier: Apache-2.0 */
/* The job layer: forming, plans, steps that commit or become void. */
#include "fixed_fixture.h"
#include "tests.h"

#include "base/user.h"
#include "proto/names.h"

/* For the sanitizers: what cannot be allocated is NULL, as without them. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void) {
        return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void) {
        return "allocator_may_return_null=1";
}

JOB_TEST(a_job_forms_and_agrees) {
        assert_int_equal(join(f, 1, 2, 0), 0);
        pass(f);
        assert_heard("");
        assert_int_equal(join(f, 1, 2, 0), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(join(f, 0, 2, 0), 0);
        pass(f);
        assert_heard("joined 0;joined 1;");
        bring(f, 0, 0, 9);
        assert_heard("");
        bring(f, 1, 0, 9);
        assert_heard("agreed 0;agreed 1;");
}

/* A job counts as running from the moment that it has formed until no member can go on with it. */
JOB_TEST(a_user_has_a_running_job) {
        struct charge hold = { 0 };

        assert_int_equal(charge_take(&hold, f->accounts, 1000, ACCOUNT_CLIENTS, 1, NULL), 0);
        assert_int_equal(join(f, 0, 2, 0), 0);
        assert_int_equal(hold.user->running, 0);
        assert_int_equal(join(f, 1, 2, 0), 0);
        pass(f);
        assert_int_equal(hold.user->running, 1);
        member_gone(f->member[0], WIRE__CAUSE__EXITED);
        pass(f);
        assert_int_equal(hold.user->running, 0);
        member_gone(f->member[1], WIRE__CAUSE__LEAVING);
        pass(f);
        form(f, 1);
        assert_int_equal(hold.user->running, 1);
        member_gone(f->member[0], WIRE__CAUSE__LEAVING);
        pass(f);
        assert_int_equal(hold.user->running, 0);
        charge_release(&hold);
}

/* A join that would be refused by any job supersedes none. */
JOB_TEST(a_join_that_is_refused_ends_no_job) {
        form(f, 2);
        assert_int_equal(join(f, 2, 2, 1), WIRE__CODE__INVALID);
        pass(f);
        assert_heard("");
        agree(f, 2);
        assert_int_equal(join(f, 0, 2, 1), 0);
        pass(f);
        assert_heard("lost 0;");
}

JOB_TEST(different_plans_fail_for_all) {
        int fd;

        form(f, 3);
        bring(f, 0, 0, 9);
        assert_int_equal(describe(f, 2, 0, "c", &fd), WIRE__CODE__PLAN_MISMATCH);
        assert_int_equal(f->refusal.rank, 2);
        assert_heard("refused 0 9 30;");
        /* comes late, hears the same */
        assert_int_equal(describe(f, 1, 0, "b", &fd), WIRE__CODE__PLAN_MISMATCH);
        assert_null(plan_find(f->member[0]->job, 0));
        for (uint32_t rank = 0; rank < 3; rank++) /* and another plan works */
                assert_int_equal(describe(f, rank, 1, "b", &fd), 0);
}

JOB_TEST(an_untouched_arena_fails_the_plan) {
        int fd;

        form(f, 2);
        assert_int_equal(describe(f, 0, 0, "b", &fd), 0);
        f->fake.refuse_attach = true;
        assert_int_equal(plan_mapped(f->member[0], 0, 9, &f->refusal), WIRE__CODE__INVALID);
}

/* Opens a plan that cannot be: its parameter has no name. */
static int spoil(struct fixture *f, uint32_t rank, uint32_t ordinal) {
        struct offer begin = offer_of(ordinal, 1);
        struct offer_param param = { 0 };
        int r = plan_begin(f->member[rank], &begin, &f->refusal);
        return r == 0 ? plan_params(f->member[rank], ordinal, &param, 1, &f->refusal) : r;
}

JOB_TEST(who_cannot_bring_a_plan_fails_it_for_all) {
        struct offer begin = { 0 };
        int fd;

        form(f, 2);
        bring(f, 0, 0, 9);
        assert_int_equal(spoil(f, 1, 0), WIRE__CODE__INVALID);
        assert_heard("refused 0 9 30;");
        assert_null(plan_find(f->member[0]->job, 0));
        assert_int_equal(spoil(f, 1, 1), WIRE__CODE__INVALID); /* rank 0, which comes later, hears it too */
        assert_int_equal(describe(f, 0, 1, "b", &fd), WIRE__CODE__PLAN_MISMATCH);
        assert_int_equal(f->refusal.rank, 1);
        bring(f, 0, 2, 9);
        begin.generation = 1;
        begin.plan = 2;
        assert_int_equal(plan_begin(f->member[1], &begin, &f->refusal), WIRE__CODE__INVALID);
        assert_heard("refused 0 9 30;");
        assert_true(list_empty(&f->member[0]->job->plans));
}

JOB_TEST(a_plan_given_up_fails_for_all) {
        int fd;

        form(f, 2);
        bring(f, 0, 0, 9);
        assert_int_equal(describe(f, 1, 0, "b", &fd), 0);
        assert_int_equal(plan_drop(f->member[1], 0, 10, &f->refusal), 0); /* it could not map the arena */
        assert_heard("refused 0 9 30;");
        assert_true(list_empty(&f->member[0]->job->plans));
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

JOB_TEST(no_room_for_memory_is_an_answer) {
        int fd;

        form(f, 1);
        f->fake.arena_error = -EMFILE;
        assert_int_equal(describe(f, 0, 0, "b", &fd), WIRE__CODE__QUOTA);
        assert_int_equal(staging_ask(f->member[0], 11, &f->refusal), WIRE__CODE__QUOTA);
        f->fake.arena_error = 0;
        assert_int_equal(staging_ask(f->member[0], 11, &f->refusal), 0);
}

JOB_TEST(a_step_commits_when_all_buckets_are_done) {
        form(f, 2);
        agree(f, 2);
        for (uint64_t step = 1; step <= 3; step++) {
                f->fake.inline_results = step == 2;
                all_ready(f, 2, step, 0);
                all_ready(f, 2, step, 1);
                end_tasks(f);
                assert_int_equal(f->member[0]->job->last_step, step);
        }
        assert_heard(
                "bucket 0;bucket 1;committed 1;bucket 0;bucket 1;committed 2;bucket 0;bucket 1;committed 3;");
        assert_int_equal(f->member[0]->job->bytes_reduced, 3 * 8);
        assert_int_equal(f->fake.submitted, 6);
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

/* No member is evicted for it, and the plan can be tried again under the next number. */
JOB_TEST(a_plan_without_memory_for_its_steps_fails_for_all) {
        int fd;

        accounts_set_limits(
                f->accounts,
                (uint64_t[ACCOUNT_SLOTS]){
                        10, 4, 8, UINT64_C(1) << 60,
                        100, [ACCOUNT_OWN] = UINT64_C(1) << 60, [ACCOUNT_PLANS] = UINT64_C(64) << 20 });
        form(f, 2);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(describe(f, rank, 0, "b", &fd), 0);
        f->fake.room = (size_t)1 << 50;
        assert_int_equal(plan_mapped(f->member[0], 0, 9, &f->refusal), 0);
        assert_int_equal(plan_mapped(f->member[1], 0, 9, &f->refusal), WIRE__CODE__NO_MEMORY);
        assert_non_null(strstr(f->refusal.text, "no memory for plan 0"));
        assert_heard("refused 0 9 22;");
        assert_int_equal(f->fake.n_arenas, 0);
        f->fake.room = 0;
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(describe(f, rank, 1, "b", &fd), 0);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(plan_mapped(f->member[rank], 1, 9, &f->refusal), 0);
        assert_heard("agreed 0;agreed 1;");
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

/* The count is of inputs, and the result has no such value, as with the maximum of -inf and a number. */
JOB_TEST(what_is_not_in_the_result_has_no_parameter) {
        form(f, 2);
        agree(f, 2);
        all_ready(f, 2, 1, 0);
        f->fake.counts[1] = 1;
        fake_end_one(&f->fake);
        f->fake.found = BACKEND_NOWHERE;
        fake_end_one(&f->fake);
        assert_heard("bucket 0;");
        assert_string_equal(f->member[0]->job->blame.parameter, "");
        assert_int_equal(f->member[0]->job->blame.rank, 1);
}

/* A loss in the middle of the search: the step is void, after the last access, and nothing is claimed
 * about it. */
JOB_TEST(a_search_ends_with_its_step) {
        form(f, 2);
        agree(f, 2);
        all_ready(f, 2, 1, 0);
        f->fake.counts[0] = 1;
        fake_end_one(&f->fake);
        assert_int_equal(f->fake.n_tasks, 1);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("");
        assert_true(f->fake.task[0].cancelled);
        fake_end_one(&f->fake);
        assert_heard("void 1;");
        assert_null(f->member[0]->job->blame.searched);
        assert_int_equal(f->member[0]->job->blame.step, 0);
        pass(f);
        assert_heard("lost 1;");
}

JOB_TEST(wrong_readys_are_refused_by_name) {
        struct ready message = { 0 };

        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 2, 0), WIRE__CODE__STATE);   /* a step too far */
        assert_int_equal(ready(f, 0, 1, 2), WIRE__CODE__INVALID); /* no such bucket */
        assert_int_equal(ready(f, 0, 1, 0), 0);
        assert_int_equal(ready(f, 0, 1, 0), WIRE__CODE__STATE); /* twice */
        message.generation = 0;
        /* an older generation is absorbed */
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), 0);
        message.generation = 2;
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), WIRE__CODE__STATE);
        message.generation = 1;
        message.plan = 5;
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), WIRE__CODE__STATE);
        message.plan = 0;
        message.step = message.bucket = 1;
        message.divisor = 7;
        assert_int_equal(step_ready(f->member[1], &message, &f->refusal), WIRE__CODE__OPERATION_MISMATCH);
}

JOB_TEST(unused_parameters_are_told) {
        struct ready message = { 0 };
        uint8_t absent = 1;

        form(f, 2);
        agree(f, 2);
        message.generation = 1;
        message.step = 1;
        message.has_absent = true;
        message.absent = &absent;
        message.absent_bytes = 1;
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), 0);
        assert_int_equal(step_ready(f->member[1], &message, &f->refusal), 0);
        assert_int_equal(f->fake.n_tasks, 0); /* there is nothing to reduce */
        message.bucket = 1;
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), 0);
        message.has_absent = false;
        assert_int_equal(step_ready(f->member[1], &message, &f->refusal), 0);
        fake_end_one(&f->fake);
        assert_heard("bucket 0 unused;bucket 1;committed 1;");
        assert_int_equal(f->member[0]->job->bytes_reduced,
                         plan_find(f->member[0]->job, 0)->reference->bucket[1].payload);
        message.step = 2;
        message.has_absent = true;
        absent = 3; /* a bit beyond the bucket's one parameter */
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), WIRE__CODE__INVALID);
        message.absent_bytes = 0;
        assert_int_equal(step_ready(f->member[0], &message, &f->refusal), WIRE__CODE__INVALID);
}

static void ready_without(struct fixture *f, uint32_t rank, uint64_t step, uint8_t absent) {
        struct ready message = {
                .generation = 1, .step = step, .has_absent = true, .absent = &absent, .absent_bytes = 1
        };

        assert_int_equal(step_ready(f->member[rank], &message, &f->refusal), 0);
}

/* Used by all, by none, and by one of them. */
JOB_TEST(each_step_has_its_unused_parameters) {
        static const uint8_t absent[3][2] = { { 0, 0 }, { 1, 1 }, { 1, 0 } };

        form(f, 2);
        agree(f, 2);
        for (uint64_t step = 1; step <= 3; step++) {
                ready_without(f, 0, step, absent[step - 1][0]);
                ready_without(f, 1, step, absent[step - 1][1]);
                all_ready(f, 2, step, 1);
                end_tasks(f);
        }
        assert_heard("bucket 0;bucket 1;committed 1;bucket 0 unused;bucket 1;committed 2;"
                     "bucket 0;bucket 1;committed 3;");
}

JOB_TEST(a_loss_in_a_step_voids_it_after_the_last_access) {
        form(f, 3);
        agree(f, 3);
        all_ready(f, 3, 1, 0);
        assert_int_equal(f->fake.n_tasks, 1);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard(""); /* the backend still has the arenas */
        assert_true(f->fake.task[0].cancelled);
        assert_int_equal(ready(f, 0, 1, 1), 0); /* absorbed */
        fake_end_one(&f->fake);
        pass(f);
        assert_heard("void 1;lost 1;");
        assert_int_equal(f->fake.n_arenas, 2); /* the dead member's has been given back */
        assert_int_equal(member_check(f->member[0], &f->refusal), WIRE__CODE__MEMBER_LOST);
        assert_int_equal(f->refusal.rank, 1);
        assert_int_equal(f->member[0]->job->void_steps, 1);
}

JOB_TEST(a_loss_after_all_were_ready_commits) {
        form(f, 2);
        agree(f, 2);
        all_ready(f, 2, 1, 0);
        all_ready(f, 2, 1, 1);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_false(f->fake.task[0].cancelled);
        fake_end_one(&f->fake);
        fake_end_one(&f->fake);
        pass(f);
        assert_heard("bucket 0;bucket 1;committed 1;lost 1;");
}

JOB_TEST(a_loss_between_steps_is_only_told) {
        form(f, 2);
        agree(f, 2);
        bring(f, 0, 1, 11);
        member_gone(f->member[1], WIRE__CAUSE__LEAVING);
        pass(f);
        assert_heard("refused 0 11 35;lost 1;"); /* the plan that waited for it, and the job */
        assert_int_equal(join(f, 0, 1, 0), 0);   /* the name is free again */
        pass(f);
        assert_heard("joined 0;");
}

JOB_TEST(a_newer_incarnation_takes_the_name) {
        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        assert_int_equal(join(f, 0, 1, 3), 0);
        pass(f);
        assert_heard("void 1;lost 0;joined 0;");
        assert_int_equal(join(f, 0, 1, 2), WIRE__CODE__STALE);
}

JOB_TEST(the_end_of_a_lost_job_does_not_change_its_reason) {
        form(f, 3);
        agree(f, 3);
        all_ready(f, 3, 1, 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        jobs_end(f->jobs);
        assert_non_null(strstr(f->member[0]->job->loss_text, "rank 1"));
}

JOB_TEST(a_slower_plan_does_not_set_a_member_back) {
        struct ready message = { 0 };

        form(f, 1);
        agree(f, 1);
        bring(f, 0, 1, 9);
        f->fake.inline_results = true;
        for (uint64_t step = 1; step <= 3; step++) {
                all_ready(f, 1, step, 0);
                all_ready(f, 1, step, 1);
        }
        message.generation = message.plan = 1;
        message.step = 1;
        for (message.bucket = 0; message.bucket < 2; message.bucket++)
                assert_int_equal(step_ready(f->member[0], &message, &f->refusal), 0);
        assert_int_equal(f->member[0]->job->last_step, 3);
        assert_int_equal(f->member[0]->last_step, 3);
}

JOB_TEST(an_evicted_member_is_lost_by_name) {
        form(f, 2);
        member_evict(f->member[1], 4711);
        assert_heard("evict 1;");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        assert_non_null(strstr(f->member[0]->job->loss_text, "it was evicted by uid 4711"));
}

/* The others hear what its session was ended for. */
JOB_TEST(a_member_is_evicted_for_something) {
        struct job *job;

        form(f, 3);
        job = f->member[0]->job;
        member_note_fault(f->member[1], "job 'j', step 3: rank 1 divides by 2");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        assert_non_null(strstr(job->loss_text, ": it was evicted: step 3: rank 1 divides by 2"));
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
