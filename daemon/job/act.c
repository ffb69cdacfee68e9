/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out what a job's machine has decided: whom each of its actions concerns. */
#include <assert.h>

#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/restart/verdict.h"

static struct plan *plan_on(const struct job *job, uint32_t track) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed && plan->track == track)
                        return plan;
        assert(false); /* a track is in use only while a plan's step is open on it */
        return NULL;
}

/* Nothing is told of a step of the former daemon, and one that is left to the next daemon stays as it is. */
static void act_on_step(struct plan *plan, enum action_kind kind) {
        bool restart = plan->job->takeover != NULL;

        switch (kind) {
        case ACTION_OPEN: step_opened(plan); break;
        case ACTION_CANCEL: step_cancel(plan); break;
        case ACTION_COMMITTED: restart ? verdict_committed(plan) : step_committed(plan); break;
        case ACTION_UNBEGUN: step_unbegun(plan); break;
        default:
                if (plan->gate != GATE_LEFT)
                        restart ? verdict_voided(plan) : step_voided(plan);
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

void job_act(struct job *job, const struct action *action) {
        switch (action->kind) {
        case ACTION_OPEN:
        case ACTION_CANCEL:
        case ACTION_COMMITTED:
        case ACTION_VOID:
        case ACTION_UNBEGUN:
        case ACTION_MISMATCH:
                if (track_is_step(action->track))
                        act_on_step(plan_on(job, action->track), action->kind);
                else
                        act_on_operation(job, action->kind);
                break;
        case ACTION_INTERRUPTED: job_interrupted(job, &action->loss, action->end); break;
        case ACTION_GENERATION: job_place(job, action); break;
        case ACTION_ENTERED: job_entered(job, action); break;
        case ACTION_REFUSED: member_refused(job, action->member, action->end, action->refusal); break;
        case ACTION_ENDED: job_ended(job, action->end); break;
        default: break; /* what there is only with other nodes: communicators, and being cut off */
        }
}
