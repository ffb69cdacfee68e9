/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job: its members come, form, are lost, go; and what a loss means for its plans and operations. Who may
 * come, with which rank, and whether the generation is broken is decided by the membership; this file carries
 * it out.
 */
#include "job/job.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/plan.h"
#include "job/private.h"
#include "job/takeover.h"
#include "job/step.h"

const char *cause_text(uint32_t cause) {
        switch (cause) {
        case WIRE__CAUSE__EXITED:
                return "its process ended";
        case WIRE__CAUSE__CLOSED:
                return "it closed its connection";
        case WIRE__CAUSE__EVICTED:
                return "it was evicted";
        case WIRE__CAUSE__SUPERSEDED:
                return "a newer incarnation of the job has started";
        case WIRE__CAUSE__SHUTDOWN:
                return "gradsyncd is stopping";
        case WIRE__CAUSE__RESTARTED:
                return "gradsyncd was restarted";
        default:
                return "unknown cause";
        }
}

static void settle(void *data);
static void broken(struct job *job);

int job_new(struct jobs *jobs, const struct job_join *join, struct job **ret, struct refusal *refusal) {
        struct job *job;
        int r;

        job = calloc(1, sizeof(*job));
        if (job == NULL)
                return -ENOMEM;
        list_init(&job->members);
        list_init(&job->plans);
        r = charge_take(&job->charge, jobs->config.accounts, join->uid, ACCOUNT_JOBS, 1, refusal);
        if (r == 0) {
                job->name = strdup(join->name);
                job->rank = calloc(LIMIT_WORLD, sizeof(*job->rank));
        }
        if (job->name == NULL || job->rank == NULL) {
                charge_release(&job->charge);
                free(job->rank);
                free(job->name);
                free(job);
                return r != 0 ? r : -ENOMEM;
        }
        job->table = jobs;
        job->id = ++jobs->next_job;
        job->uid = join->uid;
        job->token = *join->token;
        job->open = true;
        job->settle = (struct loop_deferred){ .fn = settle, .data = job };
        membership_init(&job->membership, job->name, join->membership.incarnation);
        list_append(&jobs->list, &job->link);
        *ret = job;
        return 0;
}

static void member_free(struct member *member) {
        list_remove(&member->link);
        list_remove(&member->owner_link);
        staging_deinit(&member->staging);
        memories_release(member);
        free(member);
}

struct job *job_free(struct job *job) {
        struct member *member, *spare;
        struct plan *plan, *spare_plan;

        list_for_each_safe(plan, spare_plan, &job->plans, link)
                plan_free(plan);
        operation_deinit(job);
        list_for_each_safe(member, spare, &job->members, link) {
                assert(member->owner == NULL);
                member_free(member);
        }
        takeover_free(job->takeover);
        records_keep(&job->table->ended, job->record);
        loop_defer_cancel(job->table->config.loop, &job->settle);
        charge_release(&job->charge);
        token_clear(&job->token);
        list_remove(&job->link);
        free(job->rank);
        free(job->name);
        free(job);
        return NULL;
}

int job_add(struct job *job, const struct job_join *join, struct refusal *refusal) {
        struct membership_request request = join->membership;
        struct member *member;
        int r;

        request.member = ++job->table->next_member;
        request.pid = (int32_t)join->pid;
        member = calloc(1, sizeof(*member));
        if (member == NULL)
                return -ENOMEM;
        r = membership_join(&job->membership, &request, clock_now(), refusal);
        if (r != 0) {
                free(member);
                return r;
        }
        member->job = job;
        member->id = request.member;
        member->pid = join->pid;
        member->joined = clock_now();
        member->client = join->client;
        member->rank = request.rank;
        member->has_rank = request.has_rank;
        member->join_request = join->request;
        member->owner = join->owner;
        member->returns = join->returns;
        snprintf(member->program, sizeof(member->program), "%s", join->program);
        list_append(&job->members, &member->link);
        list_append(join->owner_members, &member->owner_link);
        job_settle_later(job);
        return 0;
}

static struct member *find_member(const struct job *job, uint64_t id) {
        struct member *member;

        list_for_each(member, &job->members, link)
                if (member->id == id)
                        return member;
        return NULL;
}

void job_settle_later(struct job *job) {
        loop_defer(job->table->config.loop, &job->settle);
}

static void log_formed(const struct job *job, const char *what) {
        struct log_context context = LOG_CONTEXT_NONE;

        context.job = job->name;
        context.generation = job->membership.generation;
        context.uid = job->uid;
        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_INFO, &context, "job %s with %u members", what, job_world(job));
}

/* The member with this rank, as the membership has it. Nobody has come back after a restart who knew the id of a place
 * whose holder had been lost before: it gets a new one. */
static struct member *take_rank(struct job *job, uint32_t rank) {
        struct membership_member *place = &job->membership.member[rank];
        struct member *member = find_member(job, place->request.member);

        if (place->id == 0)
                place->id = ++job->table->next_member;
        member->rank = rank;
        member->has_rank = true;
        member->local_rank = place->slot;
        member->stable = place->id;
        member->state = MEMBER_ACTIVE;
        job->rank[rank] = member;
        return member;
}

/* Ranks are final: tells everybody. */
static void formed(struct job *job) {
        uint32_t world = job_world(job);

        job->state = JOB_RUNNING;
        for (uint32_t rank = 0; rank < world; rank++)
                take_rank(job, rank);
        log_formed(job, "formed");
        for (uint32_t rank = 0; rank < world; rank++)
                job->table->config.events->joined(job->rank[rank]);
}

void job_record_members(struct job *job) {
        if (job->record == NULL)
                return;
        job->record->world = job_world(job);
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                job->record->pid[rank] = job->rank[rank]->pid;
}

/* Where those who stay were: the plans follow them. */
static void move_plans(struct job *job, uint32_t before) {
        struct plan *plan;
        int64_t from[LIMIT_WORLD];

        for (uint32_t rank = 0; rank < job_world(job); rank++) {
                const struct member *member = find_member(job, job->membership.member[rank].request.member);

                from[rank] = member->state == MEMBER_ACTIVE ? (int64_t)member->rank : -1;
        }
        list_for_each(plan, &job->plans, link)
                plan_move(plan, before, from);
}

static void free_lost(struct job *job) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link)
                if (member->owner == NULL)
                        member_free(member);
}

/* Nothing is void after a restart of the daemon: the sequence of operations goes on, too. */
static bool resume(struct job *job) {
        if (job->takeover == NULL || !job->takeover->resumed)
                return false;
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                job->rank[rank]->operation.next = job->takeover->operations;
        return true;
}

/* Ranks are final. Growth has no cause, and takes nobody's place. */
static void note_regenerated(struct job *job, uint32_t before, const bool *fresh) {
        const struct recovery *recovery = &job->recovery;
        bool grown = job->state == JOB_RUNNING;
        bool replaced = !grown && before == job_world(job) && recovery->any && fresh[recovery->rank];

        recovery_regenerated(&job->recovery, grown ? WIRE__CAUSE__CAUSE_NONE : job->membership.loss.cause,
                             replaced ? (int32_t)job->rank[recovery->rank]->pid : 0, clock_now());
}

/* A new generation: those who stay hear of it, those who are new have joined. */
static void reformed(struct job *job, uint32_t before) {
        const struct jobs_events *events = job->table->config.events;
        struct plan *plan, *spare;
        bool fresh[LIMIT_WORLD];
        bool resumed;

        if (job->takeover != NULL)
                takeover_resolve(job, before);
        move_plans(job, before);
        if (job->state == JOB_RUNNING)
                snprintf(job->loss_text, sizeof(job->loss_text), "job '%s' has grown from %u to %u members after step %llu",
                         job->name, before, job_world(job), (unsigned long long)job->last_step);
        job->behind = job->takeover != NULL && job->takeover->behind;
        for (uint32_t rank = 0; rank < job_world(job); rank++) {
                const struct member *member = find_member(job, job->membership.member[rank].request.member);

                fresh[rank] = member->state == MEMBER_JOINING;
                job->behind |= fresh[rank];
        }
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                take_rank(job, rank);
        note_regenerated(job, before, fresh);
        free_lost(job);
        job_record_members(job);
        operation_restart(job);
        resumed = resume(job);
        job->state = JOB_RUNNING;
        log_formed(job, "goes on");
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                if (fresh[rank])
                        events->joined(job->rank[rank]);
                else if (resumed)
                        events->resumed(job->rank[rank]);
                else
                        events->regenerated(job->rank[rank], &job->membership.loss, job->loss_text);
        job->takeover = takeover_free(job->takeover);
        list_for_each_safe(plan, spare, &job->plans, link)
                plan_resume(plan);
}

/* A join that came to nothing: the refusal is the end of the member. */
static void answer_join(struct member *member, const struct refusal *refusal) {
        member->job->table->config.events->refused(member, member->join_request, refusal);
        member->owner = NULL;
        member_free(member);
}

void job_refuse_join(struct job *job, uint64_t member, const struct refusal *refusal) {
        answer_join(find_member(job, member), refusal);
}

static bool quiet(const struct job *job) {
        struct plan *plan;

        if (job->operation.tasks > 0)
                return false;
        list_for_each(plan, &job->plans, link)
                if (plan->state != STEP_IDLE)
                        return false;
        return true;
}

/* The backend has let go of everything: the memory of those who are gone is given back. */
static void release_lost(struct job *job) {
        struct plan *plan;

        for (uint32_t rank = 0; rank < job_world(job); rank++) {
                if (job->rank[rank]->owner != NULL)
                        continue;
                list_for_each(plan, &job->plans, link)
                        plan_release(plan, rank);
                staging_deinit(&job->rank[rank]->staging);
                memories_release(job->rank[rank]);
        }
}

/* … and the others hear of the loss. */
static void settle_lost(struct job *job) {
        if (!quiet(job))
                return;
        release_lost(job);
        if (job->loss_told)
                return;
        job->loss_told = true;
        job->table->config.events->lost(job, &job->membership.loss, job->loss_text);
}

static bool abandoned(const struct job *job) {
        struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL)
                        return false;
        return true;
}

/* Carries out what the membership decides. */
static void follow(struct job *job) {
        struct refusal refusal;
        uint64_t member;

        for (;;) {
                uint32_t before = job_world(job);
                enum membership_event event =
                        membership_tick(&job->membership, clock_now(), &member, &refusal);

                if (event == MEMBERSHIP_NOTHING)
                        return;
                if (event == MEMBERSHIP_HAS_BROKEN)
                        broken(job);
                else if (event == MEMBERSHIP_EXPIRED)
                        answer_join(find_member(job, member), &refusal);
                else if (job->membership.generation > 1)
                        reformed(job, before);
                else
                        formed(job);
        }
}

/* End of a loop pass in which something about the job changed. */
static void settle(void *data) {
        struct job *job = data;

        if (job->suspended)
                return;
        if (job->state == JOB_REPLACING && quiet(job)) {
                release_lost(job);
                job->membership.busy = takeover_busy(job);
        }
        job->membership.boundary = job->state == JOB_RUNNING && quiet(job) && job->operation.n_calls == 0;
        follow(job);
        job->membership.boundary = false;
        if (job->state == JOB_LOST)
                settle_lost(job);
        if (abandoned(job) && quiet(job) && !takeover_busy(job))
                job_free(job);
        else
                jobs_watch(job->table);
}

static void log_loss(const struct job *job, const struct membership_loss *loss) {
        struct log_context context = LOG_CONTEXT_NONE;

        if (!flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                return;
        context.job = job->name;
        context.generation = job->membership.generation;
        context.rank = loss->rank;
        context.pid = loss->pid;
        context.uid = job->uid;
        context.step = (int64_t)job->last_step;
        log_write(loss->cause == WIRE__CAUSE__LEAVING ? LOG_INFO : LOG_WARNING, &context, "%s",
                  job->loss_text);
}

static void log_broken(const struct job *job) {
        struct log_context context = LOG_CONTEXT_NONE;

        context.job = job->name;
        context.generation = job->membership.generation;
        context.uid = job->uid;
        log_write(LOG_WARNING, &context, "job has ended: nobody took the place of rank %u within %.1f s",
                  job->membership.loss.rank, (double)job->membership.grace / 1e6);
}

/* The generation is over, another one may follow: plans and those who are about to agree on one wait for it. */
static void interrupted(struct job *job) {
        const struct membership_loss *loss = &job->membership.loss;
        struct plan *plan;
        struct refusal refusal;

        job->state = JOB_REPLACING;
        job->interrupted = clock_now();
        log_loss(job, loss);
        refuse_for(&refusal, WIRE__CODE__VOID_RETRY, loss->rank, loss->pid, "%s; call again in the next generation",
                   job->loss_text);
        operation_break(job, &refusal);
        list_for_each(plan, &job->plans, link)
                if (plan->agreed)
                        step_break(plan);
}

/* Those who came for a place in a generation that there will not be. */
static void refuse_fresh(struct job *job) {
        struct member *member, *spare;
        struct refusal refusal;

        refuse(&refusal, WIRE__CODE__MEMBER_LOST, "%s; no member is left who holds the job's state, or too few: start the "
               "job again from a checkpoint", job->loss_text);
        list_for_each_safe(member, spare, &job->members, link)
                if (member->state == MEMBER_JOINING)
                        answer_join(member, &refusal);
}

/* The generation is over, and with it the job. What waits for others is told now, steps when the backend has let go of
 * them. */
static void broken(struct job *job) {
        const struct membership_loss *loss = &job->membership.loss;
        struct plan *plan, *spare;
        struct refusal refusal;

        if (job->state != JOB_REPLACING)
                log_loss(job, loss);
        else
                log_broken(job);
        job->state = JOB_LOST;
        job->open = false;
        refuse_fresh(job);
        refuse_for(&refusal, WIRE__CODE__MEMBER_LOST, loss->rank, loss->pid,
                   "%s; leave the job and join it anew", job->loss_text);
        operation_break(job, &refusal);
        list_for_each_safe(plan, spare, &job->plans, link) {
                plan_break(plan, &refusal);
                if (plan->agreed)
                        step_break(plan);
        }
}

void job_end(struct job *job, uint32_t cause) {
        struct member *member, *spare;
        struct refusal refusal;

        if (job->state == JOB_LOST)
                return;                 /* of something else: that stays the reason */
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s' has ended after step %llu: %s", job->name,
                 (unsigned long long)job->last_step, cause_text(cause));
        job->open = false;
        if (job->state == JOB_FORMING) {
                refuse(&refusal, WIRE__CODE__STALE, "%s", job->loss_text);
                list_for_each_safe(member, spare, &job->members, link) {
                        membership_remove(&job->membership, member->id, cause, clock_now());
                        answer_join(member, &refusal);
                }
                job_settle_later(job);
        } else if (membership_end(&job->membership, cause)) {
                broken(job);
                job_settle_later(job);
        }
}

bool job_returns(const struct job *job) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL && !member->returns)
                        return false;
        return job->state != JOB_LOST;
}

void job_interrupt(struct job *job) {
        struct membership_loss *loss = &job->membership.loss;
        struct plan *plan;

        if (job->state != JOB_RUNNING)
                return;
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': gradsyncd is stopping after step %llu, and could not await the next one",
                 job->name, (unsigned long long)job->last_step);
        *loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        list_for_each(plan, &job->plans, link)
                if (plan->agreed && !plan->left)
                        step_break(plan);
}

/* What the others are told about a member that went. Who leaves is not lost. */
static void tell_gone(struct job *job, const struct member *member, uint32_t cause) {
        unsigned long long step = job->last_step;
        char evicted[64];

        snprintf(evicted, sizeof(evicted), "it was evicted by uid %u", (unsigned)member->evictor);
        if (cause == WIRE__CAUSE__LEAVING)
                snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': rank %u (pid %d) left after step %llu",
                         job->name, member->rank, (int)member->pid, step);
        else
                snprintf(job->loss_text, sizeof(job->loss_text), "job '%s' lost rank %u (pid %d) after step %llu: %s",
                         job->name, member->rank, (int)member->pid, step,
                         member->evicted ? evicted : cause_text(cause));
}

void member_gone(struct member *member, uint32_t cause) {
        struct job *job = member->job;
        bool joining = member->state == MEMBER_JOINING;

        list_remove(&member->owner_link);
        member->owner = NULL;
        member->state = cause == WIRE__CAUSE__LEAVING ? MEMBER_LEFT : MEMBER_LOST;
        if (job->suspended) {
                job_settle_later(job);
                return;
        }
        if (job->takeover != NULL && !joining) {
                job->membership.loss = (struct membership_loss){ .member = member->id, .rank = member->rank,
                                                                 .pid = (int32_t)member->pid, .cause = cause };
                tell_gone(job, member, cause);
        }
        if (membership_remove(&job->membership, member->id, cause, clock_now())) {
                tell_gone(job, member, cause);
                recovery_begin(&job->recovery, &job->membership.loss, job->membership.generation, job->last_step,
                               member->noticed != 0 ? member->noticed : clock_now());
                if (job->membership.state == MEMBERSHIP_BROKEN)
                        broken(job);
                else
                        interrupted(job);
        }
        if (joining)
                member_free(member);
        job_settle_later(job);
}

int member_check(const struct member *member, struct refusal *refusal) {
        const struct job *job = member->job;
        const struct membership_loss *loss = &job->membership.loss;

        if (job->state == JOB_FORMING)
                return refuse(refusal, WIRE__CODE__STATE, "job '%s' has not formed yet", job->name);
        if (job->state == JOB_REPLACING)
                return refuse_for(refusal, WIRE__CODE__VOID_RETRY, loss->rank, loss->pid,
                                  "%s; call again in the next generation", job->loss_text);
        if (job->state == JOB_LOST)
                return refuse_for(refusal, WIRE__CODE__MEMBER_LOST, loss->rank, loss->pid,
                                  "%s; leave the job and join it anew", job->loss_text);
        return 0;
}

int job_arena_new(struct job *job, uint64_t bytes, struct backend_arena **ret, struct refusal *refusal) {
        struct backend *backend = job->table->config.backend;
        int r = backend->ops->arena_new(backend, bytes, ret);

        if (r == -EMFILE || r == -ENFILE || r == -ENOSPC || r == -ENOMEM)
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "job '%s': gradsyncd has no room for %" PRIu64 " bytes of shared memory: %s",
                              job->name, bytes, strerror(-r));
        return r;
}

/* The ranks that nobody holds, as far as they are known: members that asked for none are taken to get the
 * lowest free ones. */
static unsigned join_waits(struct job *job, struct job_wait *waits, unsigned max) {
        const struct membership *m = &job->membership;
        bool taken[LIMIT_WORLD] = { false };
        uint32_t unasked = 0;
        unsigned n = 0;

        if (list_empty(&job->members))
                return 0;
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        taken[m->member[i].request.rank] = true;
                else
                        unasked++;
        for (uint32_t rank = 0; rank < m->max_world && n < max; rank++) {
                if (taken[rank])
                        continue;
                if (unasked > 0)
                        unasked--;
                else
                        waits[n++] = (struct job_wait){
                                .what = "join", .rank = rank, .process_state = "", .parameter = "",
                                .since = list_entry(job->members.next, struct member, link)->joined
                        };
        }
        return n;
}

/* The places that are kept. */
static unsigned replace_waits(const struct job *job, struct job_wait *waits, unsigned max) {
        unsigned n = 0;

        for (uint32_t rank = 0; rank < job_world(job) && n < max; rank++)
                if (job->membership.member[rank].lost)
                        waits[n++] = (struct job_wait){ .what = "join", .rank = rank, .process_state = "",
                                                        .parameter = "", .since = job->interrupted };
        return n;
}

unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max) {
        struct plan *plan;
        unsigned n = 0;

        if (job->state == JOB_FORMING)
                return join_waits(job, waits, max);
        if (job->state == JOB_REPLACING)
                return replace_waits(job, waits, max);
        if (job->state != JOB_RUNNING)
                return 0;
        list_for_each(plan, &job->plans, link)
                n += plan_waits(plan, waits + n, max - n);
        return n + operation_waits(job, waits + n, max - n);
}
