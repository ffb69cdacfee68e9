/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend that takes its time: whatever a member has asked it for, something else happens before it is
 * done. In each case every request has its end, every member that is still there hears of it once, no memory
 * and no charge is left, and nothing is used that was given back (the backend asserts that).
 */
#include "descriptors.h"
#include "elastic_fixture.h"
#include "former.h"
#include "tests.h"

#include "job/rejoin.h"
#include "job/restart/takeover.h"
#include "job/watch/stall.h"
#include "job/watch/waits.h"

#define PAGES 4096u

enum phase { /* what two members have asked for */
             ALLOCATING,
             ATTACHING,
             REGISTERING,
             STAGING,
             MAPPING_STAGING,
             DROPPING,
             UNREGISTERING,
             RETURNING,
             REDUCING,
             PHASES,
};

enum blow { /* what happens meanwhile */
            NOTHING,
            ONE_GOES,
            ALL_GO,
            PLAN_DROPPED, /* by one of them */
            JOB_ENDED,
            GROWN,    /* a third comes: the next generation */
            REPLACED, /* one of them goes, and another comes: likewise */
            STOPPED,
            HANDED_OVER, /* the daemon stops, and the members will come back to the next one */
            BLOWS,
};

enum ending { IN_ORDER, REVERSED, FAILED, CALLED_OFF, ENDINGS };

struct drama {
        struct fixture *f;
        enum phase phase;
        enum blow blow;
        enum ending ending;
        bool gone[2], dropped, closed;
};

enum { OF_DROP = 50 };

static uint32_t request_of(enum phase phase, uint32_t rank) {
        return 20 + 2 * phase + rank;
}

/* An arena and a control memory for a plan of one bucket. */
static int bring_back(struct fixture *f, uint32_t rank, struct plan_former *word, uint32_t request) {
        int fds[] = { memfd_sealed(PAGES), memfd_sealed(PAGES) };
        int r = takeover_plan(f->member[rank], word, request, fds, 2, &f->refusal);

        for (unsigned i = 0; i < 2; i++)
                if (fds[i] >= 0)
                        close(fds[i]);
        return r;
}

/* To a job of two members in generation 3, with plans of one bucket. */
static void come_back(struct fixture *f, uint32_t rank) {
        struct job_rejoin rejoin = { .join = elastic(f),
                                     .secret = former_secret(rank),
                                     .generation = 3,
                                     .wait = 3600 * USEC_PER_SEC };

        if (rank == 0) {
                former_state(former_job(f->jobs, &rejoin.join, 3, 2, 2));
                for (uint32_t plan = 0; plan < 2; plan++)
                        former_plan(f->jobs, &rejoin.join, plan, 1, 1, 4);
        }
        assert_int_equal(jobs_rejoin(f->jobs, &rejoin, &f->member[rank], &f->refusal), 0);
}

static void both_come_back(struct fixture *f) {
        come_back(f, 0);
        come_back(f, 1);
}

/* All that has to be there before. */
static void prepare(const struct drama *d) {
        struct fixture *f = d->f;

        if (d->phase == RETURNING) {
                both_come_back(f);
                return;
        }
        form(f);
        for (uint32_t rank = 0; rank < 2; rank++) {
                int fd = memfd_sealed(2 * PAGES);

                if (d->phase == ATTACHING || d->phase == DROPPING || d->phase == REDUCING)
                        assert_int_equal(commit_named(f, f->member[rank], 0, "a"), 0);
                if (d->phase == DROPPING || d->phase == REDUCING)
                        assert_int_equal(plan_mapped(f->member[rank], 0, 9, &f->refusal), 0);
                if (d->phase == MAPPING_STAGING)
                        assert_int_equal(staging_ask(f->member[rank], 8, &f->refusal), 0);
                if (d->phase == UNREGISTERING)
                        assert_int_equal(memory_register(f->member[rank], 8, &fd, 1, 0, 2 * PAGES,
                                                         &f->refusal),
                                         0);
                if (fd >= 0)
                        close(fd);
        }
}

static void return_plan(struct fixture *f, uint32_t rank, uint32_t request) {
        struct plan_former word = { .step = 4 };

        describe_named(f, f->member[rank], 0, "a");
        assert_int_equal(bring_back(f, rank, &word, request), 0);
        assert_int_equal(takeover_told(f->member[rank], 2, request, &f->refusal), 0);
}

static int ask_backend(const struct drama *d, uint32_t rank) {
        uint32_t request = request_of(d->phase, rank);
        struct fixture *f = d->f;
        struct member *member = f->member[rank];
        int fd = memfd_sealed(2 * PAGES), r = 0;

        switch (d->phase) {
        case ALLOCATING:
                describe_named(f, member, 0, "a");
                r = plan_commit(member, 0, request, &f->refusal);
                break;
        case ATTACHING: r = plan_mapped(member, 0, request, &f->refusal); break;
        case REGISTERING:
                r = memory_register(member, request, &fd, 1, 0, 2 * PAGES, &f->refusal);
                assert_int_equal(fd, -1);
                break;
        case STAGING: r = staging_ask(member, request, &f->refusal); break;
        case MAPPING_STAGING: r = staging_attach(member, request, &f->refusal); break;
        case DROPPING: r = plan_drop(member, 0, request, &f->refusal); break;
        case UNREGISTERING: r = memory_unregister(member, request, 1, &f->refusal); break;
        case RETURNING: return_plan(f, rank, request); break;
        default: r = ready(f, rank, 0, 1);
        }
        if (fd >= 0)
                close(fd);
        return r;
}

static void go(struct drama *d, uint32_t rank) {
        if (d->gone[rank])
                return;
        d->gone[rank] = true;
        member_gone(d->f->member[rank], WIRE__CAUSE__EXITED);
        pass(d->f);
}

static void stop(struct drama *d) {
        for (uint32_t rank = 0; rank < 2; rank++)
                d->f->member[rank]->returns = d->blow == HANDED_OVER;
        jobs_drain(d->f->jobs);
        jobs_end(d->f->jobs);
        end_tasks(d->f); /* a daemon waits for these */
        pass(d->f);
        jobs_suspend(d->f->jobs);
        go(d, 0);
        go(d, 1);
}

static void strike(struct drama *d) {
        struct fixture *f = d->f;
        int r;

        switch (d->blow) {
        case NOTHING: pass(f); break;
        case ALL_GO: go(d, 1); /* fall through */
        case ONE_GOES: go(d, 0); break;
        case PLAN_DROPPED:
                r = d->phase == RETURNING ? 0 : plan_drop(f->member[0], 0, OF_DROP, &f->refusal);
                d->dropped = r == 0 && d->phase != RETURNING;
                assert_true(r == 0 || r == WIRE__CODE__STATE); /* it has none, or a step is open */
                break;
        case JOB_ENDED: job_end(f->member[0]->job, WIRE__CAUSE__SUPERSEDED); break;
        case REPLACED: go(d, 1); /* fall through */
        case GROWN: join(f); break;
        default: stop(d);
        }
        pass(f);
}

static int error_of(const struct drama *d, const struct fake_request *request) {
        if (d->ending == CALLED_OFF && request->cancelled)
                return -ECANCELED;
        return d->ending != FAILED ? 0 : request->request.id % 2 == 0 ? -EIO : WIRE__CODE__INVALID;
}

/* Ends all requests and tasks, also those that follow from their ends: memory that is not wanted any more is
 * given back. */
static void end_all(const struct drama *d) {
        struct fake_backend *fake = &d->f->fake;

        while (fake->n_requests > 0 || fake->n_tasks > 0) {
                unsigned which = d->ending == REVERSED && fake->n_requests > 0 ? fake->n_requests - 1 : 0;

                if (fake->n_tasks > 0 && d->ending == FAILED && !d->gone[0])
                        fake->task[0].withdrawn = 1;
                if (fake->n_tasks > 0)
                        fake_end_one(fake);
                else
                        fake_end_request(fake, which, error_of(d, &fake->request[which]));
                pass(d->f);
        }
}

/* Whether this member must have heard exactly once what has become of its request. */
static bool is_due(const struct drama *d, uint32_t rank) {
        if (d->gone[rank])
                return false;
        switch (d->phase) {
        case ATTACHING: return d->blow == NOTHING; /* else others may still be awaited */
        case RETURNING: return d->blow == NOTHING && d->ending == FAILED;
        case REDUCING: return false;
        default: return true;
        }
}

static void check_answers(const struct drama *d) {
        for (uint32_t rank = 0; rank < 2; rank++) {
                unsigned n = d->f->answered[request_of(d->phase, rank)];

                if (n > 1 || (n == 0 && is_due(d, rank)))
                        fail_msg("phase %d, blow %d, ending %d: rank %u has heard %u times", d->phase,
                                 d->blow, d->ending, rank, n);
        }
        assert_int_equal(d->f->answered[OF_DROP], d->dropped);
        if (d->phase == RETURNING && d->blow == NOTHING && d->ending != FAILED)
                assert_non_null(strstr(heard, "resumed 0;resumed 1;"));
        else if (d->phase == RETURNING && d->blow == NOTHING)
                assert_null(strstr(heard, "resumed"));
}

static void play(struct drama *d) {
        void *state = NULL;

        setup(&state);
        d->f = state;
        prepare(d);
        d->f->fake.late = true;
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(ask_backend(d, rank), 0);
        assert_int_equal(d->f->fake.n_requests, d->phase == REDUCING ? 0 : 2);
        assert_int_equal(d->f->fake.n_tasks, d->phase == REDUCING);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(d->f->answered[request_of(d->phase, rank)], 0);
        strike(d);
        if (d->blow >= STOPPED) { /* the backend is closed while it is still at work */
                close_jobs(d->f);
                return;
        }
        assert_null(strstr(heard, "resumed")); /* not before all memory is back */
        end_all(d);
        check_answers(d);
        all_gone(d->f, WIRE__CAUSE__CLOSED);
        pass(d->f);
        end_all(d);
        teardown(&state);
}

TEST_ALONE(every_request_has_its_end) {
        for (int phase = 0; phase < PHASES; phase++)
                for (int blow = 0; blow < BLOWS; blow++)
                        for (int ending = 0; ending < ENDINGS; ending++)
                                play(&(struct drama){ .phase = (enum phase)phase,
                                                      .blow = (enum blow)blow,
                                                      .ending = (enum ending)ending });
}

/* A member that goes while its arena is made keeps the charge until the backend has let go of it. */
JOB_TEST(charges_stay_with_the_memory) {
        form(f);
        f->fake.late = true;
        assert_int_equal(commit_named(f, f->member[0], 0, "a"), 0);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 1);
        member_gone(f->member[0], WIRE__CAUSE__EXITED);
        pass(f);
        assert_true(f->fake.request[0].cancelled);
        fake_end_request(&f->fake, 0, 0); /* it had been made by then */
        assert_int_equal(f->fake.request[0].request.kind, MEMORY_FREE);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 1);
        fake_end_request(&f->fake, 0, 0);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 0);
}

static void bring_plans_back(struct fixture *f, uint32_t rank, uint32_t request) {
        for (uint32_t plan = 0; plan < 2; plan++) {
                struct plan_former word = { .plan = plan, .step = 4 };

                describe_named(f, f->member[rank], plan, "a");
                assert_int_equal(bring_back(f, rank, &word, request), 0);
        }
}

/* All that a member brings back is one request: it hears once that it does not come back. */
static void refuse_return_of(unsigned first) {
        void *state = NULL;
        struct fixture *f;
        int fd = memfd_sealed(65536);

        setup(&state);
        f = state;
        both_come_back(f);
        f->fake.late = true;
        bring_plans_back(f, 0, 40);
        assert_int_equal(takeover_staging(f->member[0], 65536, 40, &fd, 1, &f->refusal), 0);
        fake_end_request(&f->fake, first, -EIO);
        end_requests(f, -EIO);
        assert_int_equal(f->answered[40], 1);
        teardown(&state);
}

TEST_ALONE(a_return_is_refused_once) {
        for (unsigned first = 0; first < 3; first++)
                refuse_return_of(first);
}

static void bring_two_back(struct fixture *f, uint32_t rank, uint32_t request) {
        bring_plans_back(f, rank, request);
        assert_int_equal(takeover_told(f->member[rank], 2, request, &f->refusal), 0);
}

/* If the job ends meanwhile, the member does not hear it for each plan. */
JOB_TEST(a_return_to_a_job_that_ends_is_refused_once) {
        both_come_back(f);
        f->fake.late = true;
        bring_two_back(f, 0, 40);
        job_end(f->member[0]->job, WIRE__CAUSE__SUPERSEDED);
        end_requests(f, 0);
        assert_int_equal(f->answered[40], 1);
}

/* Its memory is not there: the others go on with a successor once it has left. */
JOB_TEST(whoever_was_refused_is_not_back) {
        both_come_back(f);
        f->fake.late = true;
        bring_two_back(f, 0, 40);
        bring_two_back(f, 1, 41);
        fake_end_request(&f->fake, 0, -EIO);
        end_requests(f, 0);
        f->fake.late = false;
        pass(f);
        assert_int_equal(f->answered[40], 1);
        assert_null(strstr(heard, "resumed"));
        assert_null(strstr(heard, "generation"));
        f->member[0]->job->takeover->part[0].due = 0;
        rejoin_check(f->member[0]->job, clock_now());
        assert_non_null(strstr(heard, "evict 0;")); /* or it leaves before */
        member_gone(f->member[0], WIRE__CAUSE__EXITED);
        join(f);
        assert_null(strstr(heard, "resumed"));
        assert_non_null(strstr(heard, "generation 4 1;"));
}

/* The member has sent its last word before it hears that one of its plans is refused. */
JOB_TEST(the_end_of_a_refused_return_is_no_word) {
        struct plan_former word = { .step = 9 };

        both_come_back(f);
        describe_named(f, f->member[0], 0, "a");
        assert_int_equal(bring_back(f, 0, &word, 40), WIRE__CODE__INVALID);
        describe_named(f, f->member[0], 1, "a");
        word.plan = 1;
        word.step = 4;
        assert_int_equal(bring_back(f, 0, &word, 40), 0);
        assert_int_equal(takeover_told(f->member[0], 2, 40, &f->refusal), 0);
        bring_two_back(f, 1, 41);
        pass(f);
        assert_null(strstr(heard, "resumed"));
        assert_null(strstr(heard, "generation"));
        assert_int_equal(bring_back(f, 0, &word, 42), 0);
        describe_named(f, f->member[0], 0, "a");
        word.plan = 0;
        assert_int_equal(bring_back(f, 0, &word, 42), 0);
        assert_int_equal(takeover_told(f->member[0], 2, 42, &f->refusal), 0);
        pass(f);
        assert_non_null(strstr(heard, "resumed 0;resumed 1;"));
}

/* A member has gone, and its memory is kept until a task has ended. Answers that come by then are dropped. */
JOB_TEST(nobody_hears_for_a_member_that_has_gone) {
        int fd = memfd_sealed(2 * PAGES);

        form(f);
        agree(f, 2, 0);
        assert_int_equal(ready(f, 0, 0, 1), 0);
        assert_int_equal(ready(f, 1, 0, 1), 0);
        f->fake.late = true;
        describe_named(f, f->member[0], 1, "a");
        assert_int_equal(plan_commit(f->member[0], 1, 30, &f->refusal), 0);
        assert_int_equal(staging_ask(f->member[0], 31, &f->refusal), 0);
        assert_int_equal(memory_register(f->member[0], 32, &fd, 1, 0, 2 * PAGES, &f->refusal), 0);
        member_gone(f->member[0], WIRE__CAUSE__EXITED);
        pass(f);
        assert_int_equal(f->fake.n_requests, 3);
        for (unsigned i = 0; i < 3; i++)
                fake_end_request(&f->fake, 0, i == 1 ? -EIO : 0);
        fake_end_one(&f->fake);
        pass(f);
        end_requests(f, 0);
        for (uint32_t request = 30; request <= 32; request++)
                assert_int_equal(f->answered[request], 0);
        assert_int_equal(f->fake.n_arenas, 1);
}

/* Plans are compared when they are offered, not when their memory is there. */
JOB_TEST(plans_are_compared_before_their_memory_is_there) {
        form(f);
        f->fake.late = true;
        assert_int_equal(commit_named(f, f->member[0], 0, "a"), 0);
        assert_int_equal(plan_mapped(f->member[0], 0, 9, &f->refusal), WIRE__CODE__STATE);
        assert_int_equal(commit_named(f, f->member[1], 0, "b"), WIRE__CODE__PLAN_MISMATCH);
        assert_heard("refused 0 8 30;");
        assert_int_equal(f->fake.n_requests, 1);
        fake_end_request(&f->fake, 0, -ECANCELED);
        assert_int_equal(f->fake.n_requests, 0);
}

/* Memory that is still being taken over is no place for parameters, and cannot be given up. */
JOB_TEST(memory_on_its_way_is_not_there) {
        int fd = memfd_sealed(2 * PAGES);

        form(f);
        f->fake.late = true;
        assert_int_equal(memory_register(f->member[0], 14, &fd, 1, 0, 2 * PAGES, &f->refusal), 0);
        assert_int_equal(memory_unregister(f->member[0], 15, 1, &f->refusal), WIRE__CODE__INVALID);
        fake_end_request(&f->fake, 0, 0);
        assert_int_equal(f->answered[14], 1);
        assert_int_equal(f->number, 1);
        f->fake.late = false;
        assert_int_equal(memory_unregister(f->member[0], 15, 1, &f->refusal), 0);
        assert_int_equal(f->answered[15], 1);
}

/* Waits name no member for what the daemon has not done yet. */
JOB_TEST(a_plan_whose_memory_is_late_names_the_daemon) {
        struct job_wait waits[2];
        char text[WAIT_TEXT];
        struct plan *plan;

        form(f);
        assert_int_equal(commit_named(f, f->member[0], 0, "a"), 0);
        assert_int_equal(commit_named(f, f->member[1], 0, "a"), 0);
        f->fake.late = true;
        assert_int_equal(plan_mapped(f->member[0], 0, 9, &f->refusal), 0);
        assert_int_equal(plan_mapped(f->member[1], 0, 10, &f->refusal), 0);
        plan = plan_find(f->member[0]->job, 0);
        assert_int_equal(plan_waits(plan, waits, 2), 0);
        fake_end_request(&f->fake, 0, 0);
        assert_int_equal(plan_waits(plan, waits, 2), 0); /* rank 0 waits for the daemon alone */
        assert_int_equal(job_waits(plan->job, waits, 2), 1);
        assert_int_equal(waits[0].kind, WAIT_MEMORY);
        assert_null(waits[0].member);
        wait_text(plan->job, &waits[0], text);
        assert_non_null(strstr(text, "gradsyncd to get ready the memory of rank 1 (pid "));
        heard[0] = '\0';
        stall_check(plan->job, clock_now() + 10 * 60 * USEC_PER_SEC + USEC_PER_SEC);
        stall_check(plan->job, clock_now() + 10 * 60 * USEC_PER_SEC + USEC_PER_SEC);
        assert_heard("stall j 1;");
        plan->part[0].deadline = 1;
        plan_expire(plan, clock_now());
        assert_heard("refused 0 9 3;refused 1 10 3;");
        assert_non_null(strstr(plan->refusal.text, "gradsyncd has not got ready the memory of rank 1"));
        end_requests(f, 0);
}
