/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job layer over a backend whose tasks end when the test says so. Events of the job layer are recorded as
 * words, so that a test can say in which order members hear what.
 */
#pragma once

#include "unit.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/user.h"
#include "coordinating.h"
#include "entries.h"
#include "fake_backend.h"
#include "gradsync.pb-c.h"
#include "job/job.h"
#include "job/plan/plan.h"
#include "job/watch/waits.h"
#include "proto/diagnosis.h"
#include "quiet_observer.h"

#define MEMBERS 5    /* of a world, at most */
#define REQUESTS 64u /* numbers of requests that are counted */

struct fixture {
        struct loop *loop;
        struct users *accounts;
        struct coordinating coordinating;
        struct fake_backend fake;
        struct jobs *jobs;
        struct list members; /* as a session keeps them */
        struct member *member[MEMBERS];
        struct loop_deferred exit;
        struct refusal refusal;
        unsigned answered[REQUESTS]; /* how often */
        struct {
                int fds[MEMORY_FDS + 1];
                unsigned n_fds;
                uint64_t bytes;
        } memory;             /* of the latest plan */
        uint32_t number;      /* what the latest answer is about: a plan's ordinal, a memory's handle */
        struct token token;   /* what joins bring */
        uint64_t stall_takes; /* us that the report of a stall takes; if any, loop_run() ends after it */
};

static char heard[4096];
static struct fixture *fixture;

static void hear(const char *format, ...) {
        size_t used = strlen(heard);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(heard + used, sizeof(heard) - used, format, arguments);
        va_end(arguments);
}

/* Answers about memory come at once here, unless the backend is late: they are counted by their requests. */
static void on_answer(const struct job_event *event) {
        assert_non_null(event->member->owner);
        assert_true(event->request < REQUESTS);
        fixture->answered[event->request]++;
}

static void on_plan_arena(const struct job_event *event) {
        fixture->memory.n_fds = event->memory.n_fds;
        fixture->memory.bytes = event->memory.bytes;
        memcpy(fixture->memory.fds, event->memory.fds, event->memory.n_fds * sizeof(int));
        on_answer(event);
}

static void on_staging_arena(const struct job_event *event) {
        assert_int_equal(event->memory.n_fds, 1);
        assert_int_equal(event->memory.bytes, fixture->jobs->config.staging_bytes);
        on_answer(event);
}

static void on_stall(const char *job, uint32_t rank) {
        uint64_t until = clock_now() + fixture->stall_takes;

        hear("stall %s %u;", job, rank);
        while (clock_now() < until)
                ;
        if (fixture->stall_takes > 0)
                loop_exit(fixture->loop, 0);
}

static void on_event(void *data, const struct job_event *event) {
        const struct plan *plan = event->plan;
        struct member *member = event->member;
        uint32_t rank = member != NULL ? member->rank : 0;

        switch (event->kind) {
        case JOB_EVENT_JOINED:
                fixture->member[rank] = member;
                hear("joined %u;", rank);
                break;
        case JOB_EVENT_REFUSED:
                hear("refused %u %u %u;", rank, event->request, event->refusal->code);
                if (event->request < REQUESTS)
                        fixture->answered[event->request]++;
                break;
        case JOB_EVENT_PLAN_ARENA: on_plan_arena(event); break;
        case JOB_EVENT_STAGING_ARENA: on_staging_arena(event); break;
        case JOB_EVENT_STAGING_READY: on_answer(event); break;
        case JOB_EVENT_PLAN_DROPPED:
        case JOB_EVENT_REGISTERED:
        case JOB_EVENT_UNREGISTERED:
                fixture->number = event->number;
                on_answer(event);
                break;
        case JOB_EVENT_PLAN_AGREED:
                hear("agreed %u;", rank);
                on_answer(event);
                break;
        case JOB_EVENT_OPERATION_DONE: hear("operation %u %u;", rank, (unsigned)event->sequence); break;
        case JOB_EVENT_RESULT:
                hear("bucket %u%s;", event->result.bucket, event->result.unused != NULL ? " unused" : "");
                break;
        case JOB_EVENT_COMMITTED: hear("committed %u;", (unsigned)plan->step); break;
        case JOB_EVENT_VOID: hear("void %u;", (unsigned)plan->step + 1); break;
        case JOB_EVENT_LOST: hear("lost %u;", event->job->loss.rank); break;
        case JOB_EVENT_NEWGEN:
                fixture->member[rank] = member;
                hear("generation %u %u;", event->job->generation, rank);
                break;
        case JOB_EVENT_RESUMED: hear("resumed %u;", rank); break;
        case JOB_EVENT_STALL: on_stall(event->job->name, event->stall.wait->rank); break;
        case JOB_EVENT_EXPELLED: hear("evict %u;", rank); break;
        default: break;
        }
}

static void leave_loop(void *data) {
        loop_exit(data, 0);
}

/* Runs the loop until deferred work is done, and the work that it has deferred in turn. */
static void pass(struct fixture *f) {
        for (unsigned i = 0; i < 3; i++) {
                loop_defer(f->loop, &f->exit);
                assert_int_equal(loop_run(f->loop), 0);
        }
}

static inline void assert_heard(const char *what) {
        assert_string_equal(heard, what);
        heard[0] = '\0';
}

static inline void end_tasks(struct fixture *f) {
        while (f->fake.n_tasks > 0)
                fake_end_one(&f->fake);
}

static inline void end_requests(struct fixture *f, int error) {
        while (f->fake.n_requests > 0)
                fake_end_request(&f->fake, 0, error);
}

static inline void all_gone(struct fixture *f, unsigned cause) {
        while (!list_empty(&f->members))
                member_gone(list_entry(f->members.next, struct member, owner_link), cause);
}

/* All other limits of a user are as ever. */
static inline void set_limit(struct fixture *f, enum account_slot slot, uint64_t most) {
        uint64_t limits[ACCOUNT_SLOTS];

        memcpy(limits, fake_limits, sizeof(limits));
        limits[slot] = most;
        accounts_set_limits(f->accounts, limits);
}

static inline struct job_join join_of(struct fixture *f, const char *name,
                                      struct membership_request membership) {
        return (struct job_join){ .name = name,
                                  .uid = 1000,
                                  .pid = getpid(),
                                  .program = "t",
                                  .request = 7,
                                  .token = &f->token,
                                  .owner = f,
                                  .owner_members = &f->members,
                                  .membership = membership };
}

/* An average. */
static inline struct offer offer_of(uint32_t ordinal, uint32_t buckets) {
        return (struct offer){ .generation = 1,
                               .plan = ordinal,
                               .params = buckets,
                               .buckets = buckets,
                               .arena_bytes = 4096 * buckets,
                               .control_bytes = diagnosis_bytes(buckets),
                               .reduce = WIRE__REDUCE__AVG };
}

/* Buckets of one f32 parameter each, of which all but the last are called "a". */
static inline int describe_plan(struct fixture *f, struct member *member, uint32_t ordinal, uint32_t buckets,
                                const char *name) {
        struct offer begin = offer_of(ordinal, buckets);
        int r;

        begin.generation = member->job->generation;
        r = plan_begin(member, &begin, &f->refusal);
        for (uint32_t i = 0; r == 0 && i < buckets; i++) {
                struct offer_param param = { .name = i + 1 < buckets ? "a" : name,
                                             .dtype = WIRE__DTYPE__F32,
                                             .bucket = i };

                r = plan_params(member, ordinal, &param, 1, &f->refusal);
        }
        for (uint32_t i = 0; r == 0 && i < buckets; i++) {
                struct offer_bucket bucket = {
                        .dtype = WIRE__DTYPE__F32, .offset = 4096 * i, .bytes = 4, .payload = 4
                };

                r = plan_buckets(member, ordinal, &bucket, 1, &f->refusal);
        }
        return r;
}

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));
        struct jobs_config config = { .on_event = on_event,
                                      .observer = &quiet_observer,
                                      .step_deadline = 3600 * USEC_PER_SEC,
                                      .stall_notice = 60 * USEC_PER_SEC,
                                      .staging_bytes = 65536 };

        loop_new(&f->loop);
        users_new(fake_limits, &f->accounts);
        config.loop = f->loop;
        config.accounts = f->accounts;
        config.hub = coordinating_begin(&f->coordinating, f->loop, f->accounts);
        jobs_new(&config, &f->jobs);
        fake_backend_init(&f->fake, f->jobs);
        f->jobs->config.backend = f->jobs->config.staging = &f->fake.backend;
        list_init(&f->members);
        f->exit = (struct loop_deferred){ .fn = leave_loop, .data = f->loop };
        fixture = f;
        heard[0] = '\0';
        *state = f;
        return 0;
}

/* Frees the table, whatever is in it, and checks that nothing is held or charged any more. */
static int close_jobs(struct fixture *f) {
        jobs_free(f->jobs);
        fake_backend_close(&f->fake);
        assert_int_equal(f->fake.n_arenas, 0);
        coordinating_end(&f->coordinating);
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                assert_int_equal(accounts_total(f->accounts, (enum account_slot)slot), 0);
        users_free(f->accounts);
        loop_free(f->loop);
        free(f);
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        f->fake.late = false;
        end_tasks(f);
        all_gone(f, WIRE__CAUSE__CLOSED);
        end_tasks(f);
        pass(f);
        assert_true(list_empty(&f->jobs->list));
        assert_int_equal(f->fake.n_arenas, 0);
        for (uint32_t slot = 0; slot < f->jobs->tasks.n; slot++)
                assert_null(f->jobs->tasks.slot[slot]);
        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                assert_int_equal(accounts_total(f->accounts, (enum account_slot)slot), 0);
        assert_true(list_empty(&f->jobs->holdings.list));
        return close_jobs(f);
}

/* For tests.h. */
#define JOB_TEST(name) TEST_OF(name, struct fixture *f, setup, teardown)
