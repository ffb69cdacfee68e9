/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of jobs on one daemon that do anything in any order, by a seed, while operators hold and pause what
 * they do, and the backend takes its time. When all of them are gone, and the backend has ended what it had
 * begun, no job and no memory is left, whatever is still paused.
 *
 *   test_walks [FIRST [LAST]]      these seeds
 */
#define TESTS_OWN_MAIN
#include "jobs_fixture.h"
#include "tests.h"

#include <fcntl.h>

#include "former.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/rejoin.h"
#include "job/restart/takeover.h"

#define SEEDS 400u
#define TURNS 400u
#define BUSY 24u /* tasks, and requests for memory, that the backend has at most */

static uint64_t chance, incarnation;
static struct member *evicted[64]; /* their sessions end with the pass */
static unsigned n_evicted;
static unsigned committed, voided, called, resumed; /* steps, operations, members */

static uint32_t below(uint32_t n) {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        return (uint32_t)(chance >> 20) % n;
}

static void walked_evict(struct member *member) {
        if (member->owner != NULL && n_evicted < sizeof(evicted) / sizeof(evicted[0]))
                evicted[n_evicted++] = member;
}

static void on_walked_event(void *data, const struct job_event *event) {
        switch (event->kind) {
        case JOB_EVENT_RESUMED: resumed++; break;
        case JOB_EVENT_OPERATION_DONE: called++; break;
        case JOB_EVENT_COMMITTED: committed++; break;
        case JOB_EVENT_VOID: voided++; break;
        case JOB_EVENT_EXPELLED: walked_evict(event->member); break;
        default: break;
        }
}

static struct member *any_member(struct fixture *f) {
        struct member *member;
        uint32_t at = list_empty(&f->members) ? 0 : below(list_length(&f->members));

        list_for_each(member, &f->members, owner_link)
                if (at-- == 0)
                        return member;
        return NULL;
}

static void end_evicted(struct fixture *f) {
        struct member *member, *spare;

        for (unsigned i = 0; i < n_evicted; i++)
                list_for_each_safe(member, spare, &f->members, owner_link)
                        if (member == evicted[i]) {
                                member_gone(member, WIRE__CAUSE__EVICTED);
                                break;
                        }
        n_evicted = 0;
}

/* ---- what members do ---- */

/* A world that has all its members or none, and one that grows and closes ranks. */
static struct job_join any_join(struct fixture *f) {
        bool red = below(2);
        uint32_t most = red ? 2 : 3;
        struct membership_request wish = { .min_world = red ? 2 : 1,
                                           .max_world = most,
                                           .grace = below(3) * 3600 * USEC_PER_SEC,
                                           .incarnation = incarnation };
        struct job_join join;

        wish.has_rank = below(4) == 0;
        wish.rank = wish.has_rank ? below(most) : 0;
        wish.spare = !wish.has_rank && below(6) == 0;
        if (wish.has_rank && below(2)) {
                wish.identity = 1 + wish.rank;
                wish.instance = 1 + below(4);
        }
        join = join_of(f, red ? "red" : "blue", wish);
        join.returns = below(2);
        return join;
}

static void come(struct fixture *f) {
        struct job_join join = any_join(f);

        join.membership.incarnation += below(16) == 0;
        if (jobs_join(f->jobs, &join, &f->refusal) == 0)
                incarnation = join.membership.incarnation;
}

/* The former daemon may have left any job of that name, unless this one has it by now. */
static void come_back(struct fixture *f) {
        struct job_join join = any_join(f);
        uint32_t world =
                join.membership.min_world + below(join.membership.max_world - join.membership.min_world + 1);
        struct job_rejoin rejoin = { .join = join,
                                     .secret = former_secret(below(world)),
                                     .generation = 3 - below(2),
                                     .wait = below(2) * 3600 * USEC_PER_SEC };
        struct member *member;
        struct job *job = jobs_find(f->jobs, join.uid, join.name);

        if (job == NULL || (job->takeover == NULL && job->kept == NULL)) {
                struct journal_generation *left = former_job(f->jobs, &join, 3, world, 1);

                left->ended = below(4) == 0;
                left->since = 2 + below(2);
                if (below(2))
                        former_state(left);
                left->unsynced = below(4) == 0;
                former_plan(f->jobs, &join, 0, 2, 2, below(2));
        }
        jobs_rejoin(f->jobs, &rejoin, &member, &f->refusal);
}

static int memory_of(off_t bytes) {
        int fd = memfd_create("walked", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_int_equal(ftruncate(fd, bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        return fd;
}

static void tell_plan(struct fixture *f, struct member *member) {
        struct plan_former word = { .plan = 0, .step = below(2) };
        int fds[] = { memory_of(2 * 4096), memory_of(4096) };

        if (describe_plan(f, member, word.plan, 2, "b") == 0)
                takeover_plan(member, &word, 8, fds, 2, &f->refusal);
        for (unsigned i = 0; i < 2; i++)
                if (fds[i] >= 0)
                        close(fds[i]);
}

/* One that the others have comes first, and mostly there is one. */
static struct plan *any_plan(const struct member *member) {
        uint32_t at = list_empty(&member->job->plans) ? 0 : below(list_length(&member->job->plans));
        struct plan *plan;

        list_for_each(plan, &member->job->plans, link)
                if (at-- == 0)
                        return plan;
        return NULL;
}

static void plan_some(struct fixture *f, struct member *member) {
        const struct plan *plan = any_plan(member);
        uint32_t ordinal = plan != NULL && below(8) > 0 ? plan->ordinal : member->next_plan;

        if (below(40) == 0)
                plan_drop(member, ordinal, 10, &f->refusal);
        else if (plan != NULL && plan->part[member->local].state >= PART_COMPLETE && below(20) > 0)
                plan_mapped(member, ordinal, 9, &f->refusal);
        else if (describe_plan(f, member, ordinal, 2, below(20) > 0 ? "b" : "c") == 0 && below(20) > 0)
                plan_commit(member, ordinal, 8, &f->refusal);
}

/* A member that is wrong goes, as at the session layer. */
static void step_some(struct fixture *f, struct member *member) {
        const struct plan *plan = any_plan(member);

        for (uint32_t b = 0; b < 2 && plan != NULL; b++) {
                struct ready ready = { .generation = member->job->generation,
                                       .plan = plan->ordinal,
                                       .step = plan->step + 1,
                                       .bucket = b };
                const struct plan_part *part = &plan->part[member->local];

                if (part->state != PART_MAPPED || !plan->agreed || part->ready[b] == ready.step)
                        ready.bucket = below(60) > 0 ? UINT32_MAX : b;
                if (ready.bucket == b && step_ready(member, &ready, &f->refusal) != 0)
                        walked_evict(member);
                if (below(3) == 0)
                        return;
                plan = plan_find(member->job, ready.plan);
        }
}

static void call_some(struct fixture *f, struct member *member) {
        struct operation_request call = { .sequence = member->operation.next,
                                          .kind = below(2) ? 1 : 1 + below(5),
                                          .dtype = WIRE__DTYPE__F32,
                                          .reduce = WIRE__REDUCE__SUM,
                                          .bytes = 64,
                                          .total = 64,
                                          .output = 32768 };

        if (member->staging.arena == NULL)
                staging_ask(member, 12, &f->refusal);
        else if (member->staging.arena->state == HOLDING_THERE)
                staging_attach(member, 13, &f->refusal);
        operation_call(member, 11, &call, &f->refusal);
}

static void act(struct fixture *f, struct member *member) {
        uint32_t way = below(60);

        if (way == 0) {
                member_gone(member, below(2) ? WIRE__CAUSE__LEAVING : WIRE__CAUSE__CLOSED);
        } else if (way == 1 && below(3) == 0) {
                member_evict(member, 0);
        } else if (member->job->takeover != NULL && member->state == MEMBER_ACTIVE && below(2)) {
                if (below(2))
                        takeover_told(member, below(2), 14, &f->refusal);
                else
                        tell_plan(f, member);
        } else if ((member->state != MEMBER_ACTIVE || member->job->state != JOB_REPLACING) &&
                   member_check(member, &f->refusal) != 0) {
                return; /* as the session layer does */
        } else if (way < 25) {
                plan_some(f, member);
        } else if (way < 50) {
                step_some(f, member);
        } else {
                call_some(f, member);
        }
}

/* ---- what else happens ---- */

static void operate(struct fixture *f) {
        struct job *job;

        if (below(6) == 0)
                jobs_hold(f->jobs, below(2));
        list_for_each(job, &f->jobs->list, link)
                if (below(3) == 0)
                        below(2) ? job_pause(job) : job_resume(job);
}

/* Something of what the backend has begun ends. */
static void backend_some(struct fixture *f) {
        if (f->fake.n_tasks > 0 && below(2)) {
                f->fake.task[0].withdrawn = below(20) == 0;
                fake_end_one(&f->fake);
        }
        if (f->fake.n_requests > 0 && below(2))
                fake_end_request(&f->fake, below(f->fake.n_requests), below(12) == 0 ? -ENOMEM : 0);
}

static void go_on(struct fixture *f) {
        struct member *member = any_member(f);

        f->fake.submit_error = below(60) == 0 ? -ENOMEM : 0;
        if (member == NULL || below(12) == 0)
                come(f);
        else if (below(40) == 0)
                come_back(f);
        else if (below(40) == 0)
                operate(f);
        else
                act(f, member);
        f->fake.submit_error = 0;
        while (f->fake.n_tasks + f->fake.n_requests > BUSY)
                backend_some(f);
}

static void all_leave(struct fixture *f) {
        while (!list_empty(&f->members)) {
                member_gone(any_member(f), below(2) ? WIRE__CAUSE__LEAVING : WIRE__CAUSE__CLOSED);
                if (below(2))
                        backend_some(f);
                if (below(2))
                        pass(f);
        }
        n_evicted = 0;
}

/* An operator ends the wait for members that could come back. */
static void forget(struct fixture *f) {
        struct job *job;

        list_for_each(job, &f->jobs->list, link)
                for (uint32_t rank = 0; rank < job->world; rank++)
                        takeover_forget(job, rank);
        pass(f);
}

static void run_out(struct fixture *f) {
        while (f->fake.n_tasks + f->fake.n_requests > 0) {
                while (f->fake.n_tasks + f->fake.n_requests > 0)
                        backend_some(f);
                pass(f);
        }
}

static void walk(uint64_t seed) {
        struct fixture *f;

        chance = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
        incarnation = 0;
        setup((void **)&f);
        f->jobs->config.on_event = on_walked_event;
        f->fake.inline_results = below(3) == 0;
        f->fake.late = below(3) == 0;
        for (unsigned i = 0; i < TURNS; i++) {
                go_on(f);
                if (below(3) == 0)
                        backend_some(f);
                if (below(2)) {
                        end_evicted(f);
                        pass(f);
                }
        }
        all_leave(f);
        pass(f);
        run_out(f);
        forget(f);
        run_out(f);
        if (!list_empty(&f->jobs->list))
                print_message("seed %llu\n", (unsigned long long)seed);
        assert_true(list_empty(&f->jobs->list));
        teardown((void **)&f);
}

static uint64_t first = 1, last = SEEDS;

TEST_ALONE(nothing_outlives_its_members) {
        for (uint64_t seed = first; seed <= last; seed++) {
                if (last != SEEDS)
                        print_message("seed %llu\n", (unsigned long long)seed);
                walk(seed);
        }
        if (last == SEEDS) /* else the walks were too dull to prove anything */
                assert_true(committed > 1000 && voided > 300 && called > 1000 && resumed > 50);
}

int main(int argc, char **argv) {
        if (argc > 1)
                first = last = strtoull(argv[1], NULL, 10);
        if (argc > 2)
                last = strtoull(argv[2], NULL, 10);
        return tests_run(NULL, NULL);
}
