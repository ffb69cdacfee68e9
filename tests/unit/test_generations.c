/* SPDX-License-Identifier: Apache-2.0 */
/* What the job layer makes of its machine's decisions where several things are open at once: growth, losses,
 * newer processes. */
#include "elastic_fixture.h"

/* A step may need another plan's step, and an operation, before it can be complete: growth waits for all of
 * that, and holds none of it up. */
static void growth_waits_until_nothing_is_open(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        agree(f, 2, 1);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        join(f);
        assert_heard("");
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0);
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;");
        assert_int_equal(barrier(f, 0, 0), 0);
        assert_int_equal(barrier(f, 1, 0), 0);
        pass(f);
        assert_heard("operation 0 0;operation 1 0;");
        assert_int_equal(ready(f, 1, 0, 1), 0);
        assert_heard("");
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
        pass(f);
        assert_heard("generation 2 0;generation 2 1;joined 2;");
        assert_int_equal(f->member[0]->job->loss.cause, WIRE__CAUSE__CAUSE_NONE);
}

/* Each plan's step has its own fate. */
static void of_several_steps_the_complete_one_is_committed(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        agree(f, 2, 1);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0); /* complete, and with the backend */
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(barrier(f, 0, 0), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_heard("refused 0 11 10;void 1;");
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;");
        join(f);
        assert_heard("generation 2 0;joined 1;");
        assert_int_equal(f->member[0]->job->loss.cause, WIRE__CAUSE__EXITED);
}

/* What a plan has left of its track is nobody's; the next one that gets it begins with nothing open. */
static void tracks_are_used_again(void **state) {
        struct fixture *f = *state;

        form(f);
        for (uint32_t ordinal = 0; ordinal < 3 * LIMIT_PLANS; ordinal++) {
                agree(f, 2, ordinal);
                assert_int_equal(ready(f, 0, ordinal, 1), 0);
                assert_int_equal(ready(f, 1, ordinal, 1), 0);
                end_tasks(f);
                assert_heard("bucket 0;committed 1;");
                for (uint32_t rank = 0; rank < 2; rank++)
                        assert_int_equal(plan_drop(f->member[rank], ordinal, 10, &f->refusal), 0);
        }
}

static int join_as(struct fixture *f, uint32_t rank, uint64_t instance) {
        struct job_join join = elastic(f);

        join.membership.min_world = 2;
        join.membership.max_world = 2;
        join.membership.has_rank = true;
        join.membership.rank = rank;
        join.membership.identity = 1 + rank;
        join.membership.instance = instance;
        return jobs_join(f->jobs, &join, &f->refusal);
}

/* The older process still lives: it is told, and is no member from then on. */
static void a_newer_process_takes_the_rank(void **state) {
        struct fixture *f = *state;
        struct member *older;

        assert_int_equal(join_as(f, 0, 1), 0);
        assert_int_equal(join_as(f, 1, 1), 0);
        pass(f);
        assert_heard("joined 0;joined 1;");
        agree(f, 2, 0);
        older = f->member[1];
        assert_int_equal(ready(f, 1, 0, 1), 0);
        assert_int_equal(join_as(f, 1, 1), WIRE__CODE__STALE);
        assert_heard("");
        assert_int_equal(join_as(f, 1, 2), 0);
        assert_heard("evict 1;void 1;");
        assert_null(older->owner);
        pass(f);
        assert_heard("generation 2 0;joined 1;");
        assert_int_equal(f->member[0]->job->loss.cause, WIRE__CAUSE__SUPERSEDED);
        bring(f, f->member[1], 0);
        assert_heard("agreed 1;");
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
}

/* The same while the job forms: nobody has anything to lose yet. */
static void a_newer_process_takes_the_wish_for_a_rank(void **state) {
        struct fixture *f = *state;

        assert_int_equal(join_as(f, 1, 1), 0);
        pass(f);
        assert_int_equal(join_as(f, 1, 2), 0);
        assert_heard("refused 1 7 34;");
        assert_int_equal(join_as(f, 0, 1), 0);
        pass(f);
        assert_heard("joined 0;joined 1;");
}

/* In a job that can have no further member. */
static void a_newer_process_takes_a_rank_of_a_full_job(void **state) {
        struct fixture *f = *state;
        struct job_join join = elastic(f);

        join.membership.min_world = join.membership.max_world = LIMIT_LOCAL;
        join.membership.has_rank = true;
        for (uint32_t rank = 0; rank < LIMIT_LOCAL; rank++) {
                join.membership.rank = rank;
                join.membership.identity = 1 + rank;
                join.membership.instance = 1;
                assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        }
        assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), WIRE__CODE__JOB_FULL);
        join.membership.rank = 7;
        join.membership.identity = 8;
        join.membership.instance = 2;
        assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        assert_heard("refused 7 7 34;");
        assert_int_equal(newest(f)->rank, 7);
}

/* A member took memory away while the backend was reading it; by then everybody had given all. */
static void a_complete_step_without_its_memory_is_void(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        f->fake.task[0].withdrawn = 2;
        end_tasks(f);
        assert_heard("evict 1;");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        assert_heard("void 1;");
}

/* … and was lost before that was found. */
static void a_complete_step_of_a_lost_member_can_be_void(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_heard("");
        f->fake.task[0].withdrawn = 2;
        end_tasks(f);
        assert_heard("evict 1;void 1;");
        join(f);
        assert_heard("generation 2 0;joined 1;");
}

static unsigned plans_of(const struct job *job) {
        const struct list *link;
        unsigned n = 0;

        for (link = job->plans.next; link != &job->plans; link = link->next)
                n++;
        return n;
}

/* What a member had brought alone goes with it: those who come to the plan later are compared with each
 * other. */
static void a_plan_is_not_compared_with_that_of_who_is_gone(void **state) {
        struct fixture *f = *state;

        form(f);
        assert_int_equal(commit_named(f, f->member[1], 0, "wrong"), 0);
        assert_int_equal(plan_mapped(f->member[1], 0, 9, &f->refusal), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        join(f);
        assert_heard("generation 2 0;joined 1;");
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
}

/* … but with that of who has stayed. */
static void a_plan_is_compared_with_that_of_who_has_stayed(void **state) {
        struct fixture *f = *state;

        form(f);
        assert_int_equal(commit_named(f, f->member[1], 0, "right"), 0);
        assert_int_equal(commit_named(f, f->member[0], 0, "right"), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        join(f);
        assert_heard("generation 2 0;joined 1;");
        assert_int_equal(commit_named(f, f->member[1], 0, "wrong"), WIRE__CODE__PLAN_MISMATCH);
        assert_int_equal(f->refusal.rank, 1);
}

/* The others have had plans, and have none now. */
static void who_comes_later_counts_plans_as_the_others_do(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(plan_drop(f->member[rank], 0, 10, &f->refusal), 0);
        assert_int_equal(commit_named(f, f->member[0], 1, "a"), 0);
        assert_int_equal(commit_named(f, f->member[1], 1, "b"), WIRE__CODE__PLAN_MISMATCH); /* and it ends */
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_int_equal(plan_mapped(f->member[0], 1, 9, &f->refusal), WIRE__CODE__PLAN_MISMATCH);
        join(f);
        assert_heard("generation 2 0;joined 1;");
        assert_int_equal(f->member[1]->next_plan, 2);
        agree(f, 2, 2);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        join(f);
        assert_int_equal(f->member[1]->next_plan, 2);
        assert_int_equal(plans_of(f->member[0]->job), 1);
}

/* A member is lost that the others would have waited for before a plan is gone. */
static void a_plan_that_only_the_lost_had_is_freed(void **state) {
        struct fixture *f = *state;
        struct job *job;

        form(f);
        job = f->member[0]->job;
        for (uint32_t ordinal = 0; ordinal < 3 * LIMIT_PLANS; ordinal += 2) {
                agree(f, 2, ordinal);
                assert_int_equal(plan_drop(f->member[0], ordinal, 10, &f->refusal), 0);
                assert_int_equal(commit_named(f, f->member[1], ordinal + 1, "a"), 0);
                member_gone(f->member[1], WIRE__CAUSE__EXITED);
                heard[0] = '\0';
                join(f);
                assert_ptr_equal(f->member[1]->job, job);
                assert_int_equal(plans_of(job), 0);
                agree(f, 2, ordinal + 1);
                for (uint32_t rank = 0; rank < 2; rank++)
                        assert_int_equal(plan_drop(f->member[rank], ordinal + 1, 10, &f->refusal), 0);
                assert_int_equal(plans_of(job), 0);
        }
}

/* What was not found out about a void step is looked for again in the next one. */
static void a_search_in_a_void_step_is_no_burst(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        f->fake.counts[1] = 3;
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        fake_end_one(&f->fake); /* the reduction; the search is under way */
        assert_heard("");
        f->fake.task[0].withdrawn = 1;
        fake_end_one(&f->fake);
        assert_heard("evict 0;");
        member_gone(f->member[0], WIRE__CAUSE__EVICTED);
        join(f);
        assert_heard("void 1;joined 0;generation 2 1;");
        bring(f, f->member[0], 0);
        heard[0] = '\0';
        assert_int_equal(f->member[0]->job->blame.step, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        fake_end_one(&f->fake);
        assert_heard(""); /* it is searched before anybody hears of it */
        f->fake.counts[0] = 1;
        fake_end_one(&f->fake);
        assert_heard("bucket 0;committed 1;");
        assert_string_equal(f->member[0]->job->blame.parameter, "a");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(growth_waits_until_nothing_is_open, setup, teardown),
                cmocka_unit_test_setup_teardown(of_several_steps_the_complete_one_is_committed, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(tracks_are_used_again, setup, teardown),
                cmocka_unit_test_setup_teardown(a_newer_process_takes_the_rank, setup, teardown),
                cmocka_unit_test_setup_teardown(a_newer_process_takes_the_wish_for_a_rank, setup, teardown),
                cmocka_unit_test_setup_teardown(a_newer_process_takes_a_rank_of_a_full_job, setup, teardown),
                cmocka_unit_test_setup_teardown(a_complete_step_without_its_memory_is_void, setup, teardown),
                cmocka_unit_test_setup_teardown(a_complete_step_of_a_lost_member_can_be_void, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_plan_is_not_compared_with_that_of_who_is_gone, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_plan_is_compared_with_that_of_who_has_stayed, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(who_comes_later_counts_plans_as_the_others_do, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_plan_that_only_the_lost_had_is_freed, setup, teardown),
                cmocka_unit_test_setup_teardown(a_search_in_a_void_step_is_no_burst, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
