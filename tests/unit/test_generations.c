/* SPDX-License-Identifier: Apache-2.0 */
/* Generations of a job, for which a script has no words: many plans, many members, registered memory. All
 * other cases are in scripts/growing.txt. */
#include "tests.h"

#include "descriptors.h"
#include "elastic_fixture.h"

#define TEST(name) TEST_OF(name, struct fixture *f, setup, teardown)

/* A dropped plan gives its track back. The next plan on that track begins with nothing open. */
TEST(tracks_are_used_again) {
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

/* The job can have no further member. */
TEST(a_newer_process_takes_a_rank_of_a_full_job) {
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

static unsigned plans_of(const struct job *job) {
        const struct list *link;
        unsigned n = 0;

        for (link = job->plans.next; link != &job->plans; link = link->next)
                n++;
        return n;
}

/* A member is lost that the others would have waited for before a plan is gone. */
TEST(a_plan_that_only_the_lost_had_is_freed) {
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

/* One bucket in registered memory. */
static void bring_registered(struct fixture *f, struct member *member) {
        struct offer begin = { 0 };
        struct offer_param param = { 0 };
        struct offer_bucket bucket = { 0 };
        int fd = memfd_with_seals(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);

        assert_int_equal(memory_register(member, 14, &fd, 1, 0, 4096, &f->refusal), 0);
        bucket.memory = f->number;
        begin.generation = member->job->generation;
        begin.params = begin.buckets = 1;
        begin.control_bytes = 4096;
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

/* A step is open; a newcomer joins and waits; then the step is complete. */
static void complete_while_somebody_waits(struct fixture *f) {
        assert_int_equal(ready(f, 0, 0, 1), 0);
        join(f);
        assert_int_equal(ready(f, 1, 0, 1), 0);
}

/* The step is also committed: the job is about to grow. */
static void about_to_grow(struct fixture *f) {
        complete_while_somebody_waits(f);
        end_tasks(f);
        assert_heard("bucket 0;committed 1;");
}

TEST(registered_memory_is_given_back_before_growth) {
        form(f);
        bring_registered(f, f->member[0]);
        bring_registered(f, f->member[1]);
        heard[0] = '\0';
        about_to_grow(f);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("generation 2 0;joined 1;");
}

/* The plan allocates the memory for steps of three members before the third one comes. */
TEST(a_plan_has_room_for_all_who_may_come) {
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
