/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth that something comes between: from the moment at which nothing is open any more, until the next
 * generation is made at the end of the loop's pass.
 */
#include "elastic_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

/* A step is open, somebody comes and waits, and the step is complete. */
static void complete_while_somebody_waits(struct fixture *f) {
        assert_int_equal(ready(f, 0, 0, 1), 0);
        join(f);
        assert_int_equal(ready(f, 1, 0, 1), 0);
}

/* … and committed: the job is about to grow. */
static void about_to_grow(struct fixture *f) {
        complete_while_somebody_waits(f);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
}

static void lost_before_growth(struct fixture *f, uint32_t cause) {
        form(f);
        agree(f, 2, 0);
        about_to_grow(f);
        member_gone(f->member[1], cause);
        pass(f);
        assert_heard("generation 2 0;joined 1;");
        assert_int_equal(f->member[0]->job->loss.cause, cause);
        assert_int_equal(f->fake.n_arenas, 1);
}

static void a_member_dies_before_growth(void **state) {
        lost_before_growth(*state, WIRE__CAUSE__EXITED);
}

static void a_member_leaves_before_growth(void **state) {
        lost_before_growth(*state, WIRE__CAUSE__LEAVING);
}

/* Both the newcomer and a member go, and one alone is too few. */
static void too_few_are_left_before_growth(void **state) {
        struct fixture *f = *state;
        struct job_join wish = elastic(f);
        struct member *newcomer;
        struct job *job;

        wish.membership.grace = 0;
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(jobs_join(f->jobs, &wish, &f->refusal), 0);
        pass(f);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(jobs_join(f->jobs, &wish, &f->refusal), 0);
        newcomer = newest(f);
        pass(f);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
        job = f->member[0]->job;
        member_gone(newcomer, WIRE__CAUSE__EXITED);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("lost 1;");
        assert_int_equal(job->loss.rank, 1);
        assert_non_null(strstr(job->loss_text, "lost rank 1"));
}

/* One bucket in registered memory. */
static void bring_registered(struct fixture *f, struct member *member) {
        struct offer begin = { 0 };
        struct offer_param param = { 0 };
        struct offer_bucket bucket = { 0 };
        int fd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_int_equal(ftruncate(fd, 4096), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
        assert_int_equal(memory_register(member, 14, &fd, 1, 0, 4096, &f->refusal), 0);
        bucket.memory = f->number;
        begin.generation = member->job->generation;
        begin.params = begin.buckets = 1;
        begin.arena_bytes = begin.diagnosis_bytes = 4096;
        begin.reduce = WIRE__REDUCE__AVG;
        param.name = "a";
        param.dtype = bucket.dtype = WIRE__DTYPE__F32;
        bucket.bytes = bucket.payload = 4;
        assert_int_equal(plan_begin(member, &begin, &f->refusal), 0);
        assert_int_equal(plan_params(member, 0, &param, 1, &f->refusal), 0);
        assert_int_equal(plan_buckets(member, 0, &bucket, 1, &f->refusal), 0);
        assert_int_equal(plan_commit(member, 0, 8, &f->refusal), 0);
        assert_int_equal(plan_mapped(member, 0, 9, &f->refusal), 0);
}

static void registered_memory_is_given_back_before_growth(void **state) {
        struct fixture *f = *state;

        form(f);
        bring_registered(f, f->member[0]);
        bring_registered(f, f->member[1]);
        heard[0] = '\0';
        about_to_grow(f);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("generation 2 0;joined 1;");
}

/* What its steps need was allocated before the third member came. */
static void a_plan_has_room_for_all_who_may_come(void **state) {
        struct fixture *f = *state;
        const struct plan *plan;

        form(f);
        agree(f, 2, 0);
        plan = plan_find(f->member[0]->job, 0);
        assert_int_equal(plan->charge.amount, buckets_bytes(plan->reference, &f->fake.backend, 3));
        about_to_grow(f);
        pass(f);
        bring(f, f->member[2], 0);
        heard[0] = '\0';
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(ready(f, rank, 0, 2), 0);
        assert_int_equal(f->fake.task[0].task.n_inputs, 3);
        end_tasks(f);
        assert_heard("bucket 0;committed 2;");
}

static void nobody_is_left_to_grow_with(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        join(f);
        member_gone(newest(f), WIRE__CAUSE__EXITED);
        pass(f);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;");
        assert_int_equal(ready(f, 0, 0, 2), 0);
        assert_int_equal(ready(f, 1, 0, 2), 0);
        end_tasks(f);
        assert_heard("bucket 0;committed 2;");
}

/* A step that is complete holds nothing up, so what is called beside it waits for the next generation. */
static void an_operation_beside_a_complete_step_is_answered(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        complete_while_somebody_waits(f);
        assert_int_equal(barrier(f, 0, 0), 0);
        assert_int_equal(barrier(f, 1, 0), 0);
        assert_heard("");
        end_tasks(f);
        assert_heard("bucket 0;committed 1;refused 0 11 10;refused 1 11 10;");
        pass(f);
        assert_heard("generation 2 0;generation 2 1;joined 2;");
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(barrier(f, rank, 0), 0);
        assert_heard("operation 0 0;operation 1 0;operation 2 0;");
}

static void such_an_operation_is_answered_after_a_loss(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        complete_while_somebody_waits(f);
        assert_int_equal(barrier(f, 0, 0), 0);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_heard("refused 0 11 10;");
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;generation 2 0;joined 1;");
}

static void an_operation_before_growth_is_answered(void **state) {
        struct fixture *f = *state;

        form(f);
        agree(f, 2, 0);
        about_to_grow(f);
        assert_int_equal(barrier(f, 0, 0), WIRE__CODE__VOID_RETRY);
        assert_non_null(strstr(f->refusal.text, "takes in a new member"));
        pass(f);
        assert_heard("generation 2 0;generation 2 1;joined 2;");
}

/* Of two plans' steps one is being reduced, the other one is complete but may not begin. */
static void one_goes_on_and_one_is_wanted(struct fixture *f) {
        form(f);
        agree(f, 2, 0);
        agree(f, 2, 1);
        complete_while_somebody_waits(f);
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0);
        assert_int_equal(f->fake.n_tasks, 1);
}

static void what_is_only_wanted_is_not_resumed(void **state) {
        struct fixture *f = *state;

        one_goes_on_and_one_is_wanted(f);
        job_pause(f->member[0]->job);
        job_resume(f->member[0]->job);
        assert_int_equal(f->fake.n_tasks, 1);
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;generation 2 0;generation 2 1;joined 2;");
}

static void what_is_only_wanted_is_not_released_by_a_loss(void **state) {
        struct fixture *f = *state;

        one_goes_on_and_one_is_wanted(f);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        assert_int_equal(f->fake.n_tasks, 1);
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;committed 1;generation 2 0;joined 1;");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                TEST(a_member_dies_before_growth),
                TEST(a_member_leaves_before_growth),
                TEST(too_few_are_left_before_growth),
                TEST(registered_memory_is_given_back_before_growth),
                TEST(a_plan_has_room_for_all_who_may_come),
                TEST(nobody_is_left_to_grow_with),
                TEST(an_operation_beside_a_complete_step_is_answered),
                TEST(such_an_operation_is_answered_after_a_loss),
                TEST(an_operation_before_growth_is_answered),
                TEST(what_is_only_wanted_is_not_resumed),
                TEST(what_is_only_wanted_is_not_released_by_a_loss),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
