/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders of operators: hold all jobs back, pause one job, end a member. The session layer decides whether an
 * operator may give them. Time that a job is held counts against no member and for no step: when something
 * goes on, its clocks start anew.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/private.h"

/* The step has waited since `from` without being able to go on. */
static void resume_step(struct plan *plan, uint64_t from, uint64_t now) {
        if (!plan_is_open(plan))
                return;
        plan->opened += now - (from > plan->opened ? from : plan->opened);
        for (uint32_t b = 0; b < plan->reference->n_buckets; b++)
                if (plan->bucket[b].state == BUCKET_WAITING && plan->bucket[b].n_ready > 0)
                        plan->bucket[b].since = now;
        if (step_gate(plan) == GATE_OPEN)
                step_release(plan);
}

void job_pause(struct job *job) {
        if (!job_is_paused(job))
                job->paused_at = clock_now();
}

void job_resume(struct job *job) {
        uint64_t from = job->paused_at;
        struct plan *plan;

        if (!job_is_paused(job))
                return;
        job->paused_at = 0;
        list_for_each(plan, &job->plans, link)
                if (plan->gate != GATE_HELD)
                        resume_step(plan, from, clock_now());
        if (job->table->gate != GATE_HELD)
                operation_release(job);
}

/* Only steps that opened since then are held, so their whole life so far does not count. */
static void resume_held(struct job *job, uint64_t now) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link) {
                if (plan->gate != GATE_HELD)
                        continue;
                plan->gate = GATE_OPEN;
                resume_step(plan, 0, now); /* though it goes on later, if the job is paused */
        }
        if (!job_is_paused(job))
                operation_release(job);
}

void jobs_hold(struct jobs *jobs, bool hold) {
        struct job *job;

        if (jobs->gate == GATE_STOPPING || (jobs->gate == GATE_HELD) == hold)
                return;
        jobs->gate = hold ? GATE_HELD : GATE_OPEN;
        if (hold)
                return;
        list_for_each(job, &jobs->list, link)
                resume_held(job, clock_now());
}

unsigned jobs_open(const struct jobs *jobs) {
        struct plan *plan;
        struct job *job;
        unsigned n = 0;

        list_for_each(job, &jobs->list, link) {
                n += job->operation.owner.tasks > 0;
                list_for_each(plan, &job->plans, link)
                        n += plan_unit(plan) == UNIT_VOIDING || plan->owner.tasks > 0 ||
                             (plan_is_open(plan) && step_gate(plan) == GATE_OPEN);
        }
        return n;
}

void member_evict(struct member *member, uid_t evictor) {
        struct refusal refusal;

        member->evicted = true;
        member->evictor = evictor;
        refuse_for(&refusal, WIRE__CODE__MEMBER_LOST, member->rank, (int32_t)member->pid,
                   "job '%s': rank %u (pid %d) was evicted by uid %u", member->job->name, member->rank,
                   (int)member->pid, (unsigned)evictor);
        member_expel(member, &refusal);
}

bool job_is_named(const char *asked, uid_t uid, const char *name) {
        const char *slash = strchr(asked, '/');
        char prefix[16];

        if (slash == NULL)
                return strcmp(name, asked) == 0;
        snprintf(prefix, sizeof(prefix), "%u", (unsigned)uid);
        return strlen(prefix) == (size_t)(slash - asked) && strncmp(prefix, asked, strlen(prefix)) == 0 &&
               strcmp(name, slash + 1) == 0;
}
