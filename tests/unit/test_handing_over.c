/* SPDX-License-Identifier: Apache-2.0 */
/* A job that is handed from one daemon to the next: what the first leaves alone, and who comes to the second
 * in which order. */
#include "elastic_fixture.h"
#include "former.h"
#include "tests.h"

#include "job/rejoin.h"
#include "job/restart/takeover.h"

/* The next daemon finds them in the journal. */
static int setup_kept(void **state) {
        setup(state);
        former_journal(((struct fixture *)*state)->jobs);
        return 0;
}

static void all_return(struct fixture *f, uint32_t world) {
        for (uint32_t rank = 0; rank < world; rank++)
                f->member[rank]->returns = true;
}

/* A job with a step that is left stays until the table goes. */
static int teardown_left(void **state) {
        struct fixture *f = *state;

        end_tasks(f);
        jobs_suspend(f->jobs);
        all_gone(f, WIRE__CAUSE__SHUTDOWN);
        pass(f);
        return close_jobs(f);
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_kept, teardown_left)

/* No bucket of it had been begun when the daemon was told to stop, so none must be: the next daemon relies on
 * that. */
static void is_left_as_it_is(struct fixture *f) {
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        jobs_drain(f->jobs);
        assert_int_equal(f->fake.submitted, 0);
        assert_false(jobs_busy(f->jobs));
}

static void form_to_return(struct fixture *f) {
        form(f);
        all_return(f, 2);
        agree(f, 2, 0);
}

TEST(what_was_paused_is_left_as_it_is) {
        form_to_return(f);
        job_pause(f->member[0]->job);
        is_left_as_it_is(f);
}

TEST(what_was_held_is_left_as_it_is) {
        form_to_return(f);
        jobs_hold(f->jobs, true);
        is_left_as_it_is(f);
}

/* It became complete while the daemon waited for another one. */
TEST(what_is_left_is_not_begun_at_the_end) {
        form_to_return(f);
        agree(f, 2, 1);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 0, 1, 1), 0);
        jobs_drain(f->jobs);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        jobs_end(f->jobs);
        assert_int_equal(f->fake.submitted, 0);
        assert_heard("");
}

/* The next daemon's members decide what follows. */
TEST(a_loss_meanwhile_makes_no_generation) {
        struct job_join wish = elastic(f);

        wish.membership.grace = 0;
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(jobs_join(f->jobs, &wish, &f->refusal), 0);
        pass(f);
        all_return(f, 3);
        agree(f, 3, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        jobs_drain(f->jobs);
        member_gone(f->member[2], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("");
        assert_int_equal(ready(f, 0, 0, 1), 0);
}

JOB_TEST(who_is_too_few_then_hears_it) {
        struct job_join wish = elastic(f);

        wish.membership.max_world = 2;
        wish.membership.grace = 0;
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(jobs_join(f->jobs, &wish, &f->refusal), 0);
        pass(f);
        all_return(f, 2);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        jobs_drain(f->jobs);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_heard("void 1;lost 1;");
}

/* A survivor may stay for long, and meanwhile the name may belong to another job. The journal must speak of
 * that one only. */
JOB_TEST(a_job_that_is_lost_is_not_in_the_journal) {
        struct job_join wish = elastic(f);

        former_journal(f->jobs);
        wish.membership.max_world = 2;
        wish.membership.grace = 0;
        for (unsigned i = 0; i < 2; i++)
                assert_int_equal(jobs_join(f->jobs, &wish, &f->refusal), 0);
        pass(f);
        agree(f, 2, 0);
        const struct plan *plan = plan_find(f->member[0]->job, 0);
        assert_non_null(plan->kept);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        pass(f);
        assert_int_equal(f->member[0]->job->state, JOB_LOST);
        plan = plan_find(f->member[0]->job, 0);
        assert_true(plan == NULL || plan->kept == NULL);
}

/* The former daemon had a job of two members in generation 3. */
static void leave_job(struct fixture *f, uint32_t max_world) {
        struct job_join wish = elastic(f);

        wish.membership.max_world = max_world;
        former_state(former_job(f->jobs, &wish, 3, 2, 0));
}

static struct member *come_back(struct fixture *f, uint32_t rank) {
        struct job_rejoin rejoin = { .join = elastic(f),
                                     .secret = former_secret(rank),
                                     .generation = 3,
                                     .wait = 3600 * USEC_PER_SEC };
        struct member *member;

        rejoin.join.returns = true;
        assert_int_equal(jobs_rejoin(f->jobs, &rejoin, &member, &f->refusal), 0);
        f->member[rank] = member;
        return member;
}

/* A new process came first, and asked for what this job has not. */
JOB_TEST(who_came_too_early_is_turned_away) {
        struct job_join fresh = elastic(f);

        leave_job(f, 2);
        assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        come_back(f, 0);
        assert_heard("refused 0 7 20;");
        assert_int_equal(takeover_told(f->member[0], 0, 40, &f->refusal), 0);
        assert_int_equal(takeover_told(come_back(f, 1), 0, 40, &f->refusal), 0);
        pass(f);
        assert_heard("resumed 0;resumed 1;");
}

/* It may also wait until there is a place. */
JOB_TEST(who_came_too_early_waits) {
        struct job_join fresh = elastic(f);
        struct member *waits;

        leave_job(f, 3);
        assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        waits = newest(f);
        assert_int_equal(takeover_told(come_back(f, 0), 0, 40, &f->refusal), 0);
        assert_int_equal(member_check(waits, &f->refusal), WIRE__CODE__STATE);
        assert_non_null(strstr(f->refusal.text, "has no place in it yet; wait for the answer to its join"));
        assert_int_equal(takeover_told(come_back(f, 1), 0, 40, &f->refusal), 0);
        pass(f);
        assert_heard("generation 4 0;generation 4 1;joined 2;");
}

/* More of them than the job has room for: none keeps a member from its place. */
JOB_TEST(however_many_come_too_early) {
        struct job_join fresh = elastic(f);

        leave_job(f, 3);
        assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        assert_int_equal(takeover_told(come_back(f, 0), 0, 40, &f->refusal), 0);
        for (unsigned i = 0; i < 15; i++)
                assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        assert_int_equal(takeover_told(come_back(f, 1), 0, 40, &f->refusal), 0);
        pass(f);
        assert_non_null(strstr(heard, "generation 4 0;generation 4 1;joined 2;"));
}

/* The daemon no longer waits for members that are missing. */
JOB_TEST(a_member_that_is_back_has_time_to_tell) {
        leave_job(f, 2);
        struct member *first = come_back(f, 0);
        struct job *job = first->job;

        assert_int_equal(takeover_told(first, 0, 40, &f->refusal), 0);
        job->takeover->deadline = clock_now();
        come_back(f, 1);
        rejoin_check(job, clock_now());
        assert_heard("");
        rejoin_check(job, clock_now() + 60 * USEC_PER_SEC);
        assert_heard("evict 1;");
        assert_int_equal(takeover_told(f->member[1], 0, 40, &f->refusal), 0);
}

/* One came back, a new process took the other place, and then the first was lost before the new one had its
 * state. */
JOB_TEST(nobody_has_a_state_any_more) {
        struct job_join fresh = elastic(f);

        leave_job(f, 2);
        struct member *old = come_back(f, 0);

        fresh.membership.max_world = 2;
        assert_int_equal(takeover_told(old, 0, 40, &f->refusal), 0);
        assert_true(takeover_forget(old->job, 1));
        assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        pass(f);
        assert_heard("generation 4 0;joined 1;");
        member_gone(old, WIRE__CAUSE__EXITED);
        assert_int_equal(jobs_join(f->jobs, &fresh, &f->refusal), 0);
        pass(f);
        assert_heard("refused 0 7 35;lost 0;");
}
