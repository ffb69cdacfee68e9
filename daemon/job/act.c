/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out the decisions of the jobs' machines: passes each action to the code that it concerns. */
#include <assert.h>

#include "job/collective.h"
#include "job/plan/plan.h"
#include "job/plan/position.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/restart/takeover.h"

/* A plan that has been given up meanwhile needs no track. */
static void act_on_plan(struct job *job, const struct action *action) {
        struct plan *plan = plan_find(job, (uint32_t)action->number);

        if (plan != NULL)
                plan_take_track(plan, action->track, action->index);
}

/* Members go on with it once the job does: their gradients are as they gave them. */
static void act_quietly(struct plan *plan) {
        plan->job->untold++;
        step_unbegun(plan);
}

static void act_void(struct plan *plan) {
        plan->job->torn = true;
        position_end(plan->job);
        step_voided(plan);
}

/* Members hear of it with the next generation. */
static void act_on_former_step(struct plan *plan, bool committed) {
        if (committed) {
                plan->step++;
                position_commit(plan);
        } else {
                plan->job->takeover->voided = true; /* the journal has it once members enter the generation */
        }
}

/* A step that is left to the next daemon stays as it is. */
static void act_on_step(struct plan *plan, enum action_kind kind) {
        bool former = plan->job->takeover != NULL;

        switch (kind) {
        case ACTION_OPEN: step_opened(plan); break;
        case ACTION_CANCEL: step_cancel(plan); break;
        case ACTION_UNBEGUN: step_unbegun(plan); break;
        case ACTION_COMMITTED:
                if (former)
                        act_on_former_step(plan, true);
                else
                        step_committed(plan);
                break;
        default:
                if (plan->gate == GATE_LEFT)
                        return;
                if (former)
                        act_on_former_step(plan, false);
                else if (step_can_wait(plan))
                        act_quietly(plan);
                else
                        act_void(plan);
        }
}

static void act_on_operation(struct job *job, enum action_kind kind) {
        switch (kind) {
        case ACTION_OPEN: operation_opened(job); break;
        case ACTION_CANCEL: operation_cancel(job); break;
        case ACTION_COMMITTED: operation_committed(job); break;
        default: operation_voided(job);
        }
}

static void act_on_unit(struct job *job, const struct action *action) {
        if (track_is_step(action->track))
                act_on_step(plan_on_track(job, action->track), action->kind);
        else
                act_on_operation(job, action->kind);
}

/* The job may have waited for that alone. */
static void act_on_end(struct job *job, const struct action *action) {
        act_on_unit(job, action);
        collective_follow(job);
        if (job->state != JOB_RUNNING || job_is_abandoned(job))
                job_settle_later(job);
}

/* The coordinator does not know yet that the job has ended here, as its members do. */
static bool act_comes_late(const struct job *job, enum action_kind kind) {
        return job->state == JOB_LOST &&
               (kind == ACTION_INTERRUPTED || kind == ACTION_GENERATION || kind == ACTION_ENTERED);
}

static void job_act(struct job *job, const struct action *action) {
        if (act_comes_late(job, action->kind))
                return;
        switch (action->kind) {
        case ACTION_OPEN:
        case ACTION_CANCEL: act_on_unit(job, action); break;
        case ACTION_COMMITTED:
        case ACTION_VOID:
        case ACTION_UNBEGUN:
        case ACTION_MISMATCH:
                if (action->behind)
                        job_fall_behind(job);
                act_on_end(job, action);
                break;
        case ACTION_TRACK: act_on_plan(job, action); break;
        case ACTION_EXPLAIN:
                plan_explain(job, (uint32_t)action->number, action->note, (uint32_t)action->index);
                break;
        case ACTION_REJECTED: plan_reject(job, (uint32_t)action->number, action->refusal); break;
        case ACTION_INTERRUPTED: job_interrupted(job, &action->loss, action->end); break;
        case ACTION_GENERATION: job_place(job, action); break;
        case ACTION_ENTERED:
                job_entered(job, action);
                collective_follow(job);
                break;
        case ACTION_REFUSED: member_refused(job, action->member, action->end, action->refusal); break;
        case ACTION_ENDED:
                machine_end_of_job(job);
                job_ended(job, &action->loss, action->end);
                break;
        case ACTION_BUILD:
        case ACTION_DROP:
        case ACTION_ABORT:
        case ACTION_LAUNCH: collective_act(job, action); break;
        case ACTION_OUT: job_fall_behind(job); break;
        }
}

/* A coordinator in this process calls back while it is given a report: the outer call goes on. */
void jobs_advance(struct jobs *jobs) {
        const struct action *action;
        struct job *job;

        if (jobs->advancing || !effects_any(&jobs->effects))
                return;
        jobs->advancing = true;
        while (machine_next(jobs, &job, &action))
                job_act(job, action);
        jobs->advancing = false;
}
