/* SPDX-License-Identifier: Apache-2.0 */
/* The table of jobs: finding one by its owner and name, handing results of the backend to their owners, and
 * the clock tick. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/collective.h"
#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/rejoin.h"
#include "job/watch/deadlock.h"
#include "job/watch/stall.h"

#define WATCH (2 * USEC_PER_MSEC)  /* of a tick for stalls: all members of a job hear of each */
#define LOOK (250 * USEC_PER_MSEC) /* between two looks for members that wait for each other */

/* No member will ever end it. */
static void watch_deadlock(struct job *job, uint64_t now) {
        char text[sizeof(job->loss_text)];

        if (!stall_is_told(job)) {
                deadlock_forget(job);
                return;
        }
        if (now - job->deadlock.looked < LOOK)
                return;
        job->deadlock.looked = now;
        if (deadlock_is_due(job, stall_patience(job), now) && deadlock_describe(job, text, sizeof(text)))
                job_end_deadlock(job, text);
}

/* If many jobs stall at once, a tick looks at as many as it has time for, so that no job's results wait for
 * all of that. The next tick begins with the jobs that are left. */
static void watch_stalls(struct jobs *jobs, uint64_t now) {
        uint64_t began = clock_now();
        uint32_t first = jobs->unwatched;
        struct job *job, *spare;

        jobs->unwatched = 0;
        for (unsigned round = 0; round < 2; round++)
                list_for_each_safe(job, spare, &jobs->list, link) {
                        if ((job->id < first) != (round == 1))
                                continue;
                        if (clock_now() - began >= WATCH) {
                                jobs->unwatched = job->id;
                                return;
                        }
                        if (job->cluster)
                                job_tell(job, (struct job_event){ .kind = JOB_EVENT_TICK });
                        stall_check(job, now);
                        watch_deadlock(job, now);
                }
}

static void tick(void *data) {
        struct jobs *jobs = data;
        uint64_t now = clock_now();
        struct job *job, *spare;
        struct plan *plan, *spare_plan;

        jobs->ticking = false;
        list_for_each_safe(job, spare, &jobs->list, link) {
                list_for_each_safe(plan, spare_plan, &job->plans, link)
                        if (!plan->agreed)
                                plan_expire(plan, now);
                rejoin_check(job, now);
        }
        watch_stalls(jobs, now);
        jobs_advance(jobs);
        jobs_watch(jobs);
}

/* ---- what the engine says ---- */

static struct job *job_of(struct jobs *jobs, uint64_t id, uint32_t *ret_part) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->comm.id != 0 && id - job->comm.id < COMM_PARTS) {
                        *ret_part = (uint32_t)(id - job->comm.id);
                        return job;
                }
        return NULL;
}

static void on_publish(void *owner, uint64_t comm, const void *table, size_t bytes) {
        uint32_t part;
        struct job *job = job_of(owner, comm, &part);

        if (job != NULL)
                collective_published(job, part, table, bytes);
        jobs_advance(owner);
}

static void on_built(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n) {
        uint32_t part;
        struct job *job = job_of(owner, comm, &part);

        if (job != NULL)
                collective_built(job, part, unreachable, n);
        jobs_advance(owner);
}

static void on_done(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value) {
        uint32_t part;
        struct job *job = job_of(owner, comm, &part);

        if (job == NULL)
                return;
        collective_done(job, part, lane, sequence, value);
        jobs_advance(owner);
        collective_free_exchanges(job);
}

static void on_unreachable(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n) {
        uint32_t part;
        struct job *job = job_of(owner, comm, &part);

        if (job != NULL)
                collective_unreachable(job, part, nodes, n);
        jobs_advance(owner);
}

static void on_aborted(void *owner, uint64_t comm) {
        uint32_t part;
        struct job *job = job_of(owner, comm, &part);

        if (job == NULL || !comm_ended(&job->comm, part))
                return;
        machine_aborted(job);
        jobs_advance(owner);
        collective_free_exchanges(job);
        job_settle_later(job);
}

static void on_shared(void *owner, uint64_t memory) {
        struct jobs *jobs = owner;
        struct plan *plan;
        struct job *job;

        list_for_each(job, &jobs->list, link)
                list_for_each(plan, &job->plans, link)
                        step_shared(plan, memory);
        jobs_advance(jobs);
}

static void on_unshared(void *owner, uint64_t memory) {
        shared_gone(owner, memory);
        jobs_advance(owner);
}

static const struct engine_events engine_events = {
        .publish = on_publish,
        .built = on_built,
        .done = on_done,
        .unreachable = on_unreachable,
        .aborted = on_aborted,
        .shared = on_shared,
        .unshared = on_unshared,
};

void jobs_use_engines(struct jobs *jobs, struct engine *engine, struct engine *staging) {
        jobs->config.engine = engine;
        jobs->config.staging_engine = staging;
        for (uint32_t part = 0; (engine = machine_engine(jobs, part)) != NULL; part++) {
                engine->events = &engine_events;
                engine->owner = jobs;
        }
}

int jobs_new(const struct jobs_config *config, struct jobs **ret) {
        struct jobs *jobs = calloc(1, sizeof(*jobs));

        if (jobs == NULL)
                return -ENOMEM;
        jobs->config = *config;
        jobs_use_engines(jobs, config->engine, config->staging_engine);
        list_init(&jobs->list);
        list_init(&jobs->holdings.list);
        records_init(&jobs->ended);
        int r = parameters_home_init(&jobs->parameters, config->accounts, config->loop);
        if (r == 0)
                r = effects_init(&jobs->effects, EFFECTS_ROOM);
        if (r == 0)
                r = loop_timer_new(config->loop, tick, jobs, &jobs->tick);
        if (r < 0) {
                effects_deinit(&jobs->effects); /* the home has nothing to let go of yet */
                free(jobs);
                return r;
        }
        *ret = jobs;
        return 0;
}

struct jobs *jobs_free(struct jobs *jobs) {
        struct job *job, *spare;

        if (jobs == NULL)
                return NULL;
        collective_end(jobs);
        jobs->journal = journal_close(jobs->journal); /* jobs that are left are the next daemon's */
        list_for_each_safe(job, spare, &jobs->list, link)
                job_free(job);
        collective_let_go(jobs);
        holdings_deinit(&jobs->holdings);
        parameters_home_deinit(&jobs->parameters);
        records_deinit(&jobs->ended);
        loop_timer_free(jobs->tick);
        effects_deinit(&jobs->effects);
        tasks_deinit(&jobs->tasks);
        free(jobs);
        return NULL;
}

void jobs_done(void *data, const struct backend_result *result) {
        struct jobs *jobs = data;

        tasks_done(&jobs->tasks, result);
        jobs_advance(jobs);
}

void jobs_made(void *jobs, const struct memory_result *result) {
        holdings_made(jobs, result);
        jobs_advance(jobs);
}

/* Where it can have members. A job of the other kind may end by this one's incarnation. */
static int jobs_check_scope(const struct jobs *jobs, const struct job *job, const struct job_join *join,
                            struct refusal *refusal) {
        if (join->cluster && jobs->config.cluster == NULL)
                return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                              "job '%s' is to span several daemons, but this gradsyncd has no coordinator: "
                              "set `coordinator` in its configuration, or join with the scope 'host'",
                              join->name);
        if (join->cluster && jobs->config.engine == NULL)
                return refuse(
                        refusal, WIRE__CODE__UNSUPPORTED,
                        "job '%s' is to span several daemons, but this gradsyncd exchanges nothing with "
                        "others: %s; join with the scope 'host'",
                        join->name,
                        jobs->config.no_engine != NULL ? jobs->config.no_engine : "it has no engine");
        if (job == NULL || job->cluster == join->cluster || join->membership.incarnation > job->incarnation)
                return 0;
        return refuse(
                refusal, WIRE__CODE__INVALID,
                "job '%s' has the scope '%s' here, and this process asks for '%s': all members must ask "
                "for the same",
                join->name, job->cluster ? "cluster" : "host", join->cluster ? "cluster" : "host");
}

/* As many jobs of the cluster as the engine has room for. */
static int jobs_check_room(const struct jobs *jobs, const struct job_join *join, struct refusal *refusal) {
        const struct engine *engine = jobs->config.engine;
        uint32_t n = 0;
        struct job *job;

        if (!join->cluster || engine == NULL || engine->ops->most == 0)
                return 0;
        list_for_each(job, &jobs->list, link)
                n += job->cluster;
        if (n < engine->ops->most)
                return 0;
        return refuse(
                refusal, WIRE__CODE__QUOTA,
                "job '%s': this GPU has %u jobs that span several daemons, and kernels of more would wait "
                "for each other: end one of them, or lower nccl_ctas in gradsyncd.conf on all nodes",
                join->name, n);
}

int jobs_join(struct jobs *jobs, const struct job_join *join, struct refusal *refusal) {
        struct job *job = jobs_find(jobs, join->uid, join->name);
        int r = 0;

        if (jobs->gate == GATE_STOPPING)
                return refuse(refusal, WIRE__CODE__DAEMON_LOST,
                              "gradsyncd is ending and takes no more members");
        if (job != NULL)
                r = job_check_token(job, join->token, refusal);
        if (r == 0)
                r = jobs_check_scope(jobs, job, join, refusal);
        if (r != 0)
                return r;
        if (jobs->gate == GATE_HELD)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s': an operator has gradsyncd drained, and it takes no more members; "
                              "wait for gradsyncctl resume",
                              join->name);
        if (job != NULL && join->membership.incarnation > job->incarnation) {
                r = membership_check(join->name, &join->membership, refusal);
                if (r != 0)
                        return r; /* a process that cannot join any job must not end one */
                job_end(job, WIRE__CAUSE__SUPERSEDED);
                jobs_advance(jobs);
                job = NULL;
        }
        bool fresh = job == NULL;
        if (fresh) {
                r = jobs_check_room(jobs, join, refusal);
                if (r != 0)
                        return r;
                r = job_new(jobs, join, &job, refusal);
                if (r != 0)
                        return r;
        }
        r = job_add(job, join, refusal);
        if (r != 0 && fresh)
                job_free(job);
        jobs_watch(jobs);
        return r;
}

/* Steps of which no bucket has been begun are left to the next daemon as they are. */
static void hold_back(struct job *job) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan_is_open(plan) && !step_begun(plan))
                        plan->gate = GATE_LEFT;
}

void jobs_drain(struct jobs *jobs) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job_returns(job))
                        hold_back(job);
        jobs_hold(jobs, false);
        list_for_each(job, &jobs->list, link)
                job_resume(job);
        jobs_advance(jobs);
        jobs->gate = GATE_STOPPING;
}

void jobs_end(struct jobs *jobs) {
        struct job *job, *spare;

        list_for_each_safe(job, spare, &jobs->list, link)
                if (job->cluster)
                        job_leave_open(job);
                else if (job_returns(job))
                        job_interrupt(job);
                else
                        job_end(job, WIRE__CAUSE__SHUTDOWN);
        jobs_advance(jobs);
}

/* Members that would come back must not wait for the others then. */
static bool some_return(const struct job *job) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL && member->returns)
                        return true;
        return false;
}

/* Its members go on with the next daemon, and other nodes meanwhile with what the coordinator knows. */
static bool job_departs(const struct job *job) {
        return job->cluster && job->state != JOB_FORMING && job_returns(job) && some_return(job);
}

bool jobs_depart(struct jobs *jobs) {
        bool all = true;
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job_departs(job))
                        machine_depart(job);
        jobs_advance(jobs);
        list_for_each(job, &jobs->list, link)
                all &= !job_departs(job) || machine_has_departed(job);
        return all;
}

void jobs_suspend(struct jobs *jobs) {
        struct job *job, *spare;

        list_for_each_safe(job, spare, &jobs->list, link) {
                if (job_departs(job))
                        machine_leave(job);
                if (job->cluster || job_returns(job))
                        job_hand_over(job);
                else if (some_return(job))
                        job_end(job, WIRE__CAUSE__SHUTDOWN);
        }
        jobs_advance(jobs);
}

/* The backend works for it. */
static bool job_has_tasks(const struct job *job) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->owner.tasks > 0)
                        return true;
        return job->operation.owner.tasks > 0;
}

/* A step or an operation is open that does not go over to the next daemon as it is, or a generation is about
 * to begin. */
static bool job_is_open(const struct job *job) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan_unit(plan) != UNIT_IDLE && plan->gate != GATE_LEFT)
                        return true;
        return operation_is_under_way(job) || (job_departs(job) && machine_is_ahead(job));
}

bool jobs_busy(const struct jobs *jobs) {
        const struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job_has_tasks(job) || (job->handover != HANDOVER_OPEN && job_is_open(job)))
                        return true;
        return false;
}
