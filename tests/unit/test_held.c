/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that the job layer does not begin: those of a daemon that drains or is held, and of paused jobs. */
#include "tests.h"

#include "fixed_fixture.h"

#define TEST(name) TEST_OF(name, struct fixture *f, setup, teardown)

TEST(draining_opens_no_new_step) {
        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        jobs_drain(f->jobs);
        assert_true(jobs_busy(f->jobs));
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 0), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0);
        fake_end_one(&f->fake);
        fake_end_one(&f->fake);
        assert_false(jobs_busy(f->jobs));
        assert_int_equal(ready(f, 0, 2, 0), 0);
        assert_false(jobs_busy(f->jobs));
        assert_heard("bucket 0;bucket 1;committed 1;");
        assert_int_equal(join(f, 0, 1, 9), WIRE__CODE__DAEMON_LOST);
}

TEST(what_is_held_is_launched_later) {
        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        jobs_hold(f->jobs, true);
        assert_int_equal(ready(f, 1, 1, 0), 0); /* of a step that was open */
        assert_int_equal(f->fake.n_tasks, 1);
        assert_int_equal(jobs_open(f->jobs), 1);
        job_pause(f->member[0]->job);
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0);
        assert_int_equal(f->fake.n_tasks, 1);
        fake_end_one(&f->fake);
        assert_int_equal(jobs_open(f->jobs), 0);
        assert_heard("bucket 0;");
        jobs_hold(f->jobs, false);
        assert_int_equal(f->fake.n_tasks, 0); /* it is paused still */
        job_resume(f->member[0]->job);
        assert_int_equal(f->fake.n_tasks, 1);
        fake_end_one(&f->fake);
        assert_heard("bucket 1;committed 1;");
}

/* Neither that of a step which was paused, nor that of one which was held first, and paused before it was
 * released. */
TEST(time_that_is_held_is_no_part_of_a_step) {
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

TEST(what_is_held_and_cannot_start_ends_the_step) {
        form(f, 2);
        agree(f, 2);
        job_pause(f->member[0]->job);
        for (uint32_t rank = 0; rank < 2; rank++)
                for (uint32_t bucket = 0; bucket < 2; bucket++)
                        assert_int_equal(ready(f, rank, 1, bucket), 0);
        f->fake.submit_error = -ENOMEM;
        job_resume(f->member[0]->job);
        assert_heard("evict 0;");
        member_gone(f->member[0], WIRE__CAUSE__EVICTED);
        pass(f);
        assert_heard("void 1;lost 0;");
}

TEST(a_loss_releases_what_is_held_and_complete) {
        for (unsigned failing = 0; failing < 2; failing++) {
                form(f, 2);
                agree(f, 2);
                job_pause(f->member[0]->job);
                for (uint32_t rank = 0; rank < 2; rank++)
                        for (uint32_t bucket = 0; bucket < 2; bucket++)
                                assert_int_equal(ready(f, rank, 1, bucket), 0);
                f->fake.submit_error = failing ? -ENOMEM : 0;
                member_gone(f->member[1], WIRE__CAUSE__EXITED);
                pass(f);
                end_tasks(f);
                pass(f);
                assert_heard(failing ? "evict 0;void 1;lost 1;" : "bucket 0;bucket 1;committed 1;lost 1;");
                member_gone(f->member[0], WIRE__CAUSE__LEAVING);
                pass(f);
        }
}

TEST(a_loss_that_can_be_made_good_releases_it_as_well) {
        for (uint32_t rank = 0; rank < 2; rank++) {
                struct job_join join = join_request(f, "j", rank, 2, 0);

                join.membership.grace = 3600 * USEC_PER_SEC;
                assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        }
        pass(f);
        agree(f, 2);
        job_pause(f->member[0]->job);
        for (uint32_t bucket = 0; bucket < 2; bucket++)
                all_ready(f, 2, 1, bucket);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        end_tasks(f);
        assert_heard("bucket 0;bucket 1;committed 1;");
        assert_int_equal(f->member[0]->job->state, JOB_REPLACING);
}

/* Its coordinator hears of it later, and its order that interrupts the job is not carried out any more. */
TEST(an_end_releases_what_is_held_and_complete) {
        form(f, 2);
        agree(f, 2);
        job_pause(f->member[0]->job);
        for (uint32_t bucket = 0; bucket < 2; bucket++)
                all_ready(f, 2, 1, bucket);
        job_end(f->member[0]->job, WIRE__CAUSE__SUPERSEDED);
        pass(f);
        end_tasks(f);
        pass(f);
        assert_heard("bucket 0;bucket 1;committed 1;lost 0;");
        all_gone(f, WIRE__CAUSE__CLOSED);
        pass(f);
        assert_true(list_empty(&f->jobs->list));
}
