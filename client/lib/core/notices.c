/* SPDX-License-Identifier: Apache-2.0 */
/* Gives each message that answers no request to the job or plan that it is for. */
#include "client/lib/core/notices.h"

#include "client/lib/member/generation.h"
#include "client/lib/member/member.h"

static struct gradsync_plan *notices_find_plan(struct gradsync *gs, uint32_t handle, uint32_t ordinal) {
        struct gradsync_job *job = job_find(gs, handle);
        struct gradsync_plan *plan = job ? job->plans->list : NULL;

        while (plan != NULL && plan->ordinal != ordinal)
                plan = plan->next;
        return plan;
}

/* A job or plan that is gone here is no error: its last messages were on their way. */
static int notices_step(struct gradsync *gs, const Wire__Step *step) {
        struct gradsync_plan *plan = notices_find_plan(gs, step->job, step->plan);

        return plan ? step_message(plan, step) : GRADSYNC_OK;
}

static int notices_lost(struct gradsync *gs, const Wire__Lost *lost) {
        struct gradsync_job *job = job_find(gs, lost->job);

        if (job == NULL)
                return GRADSYNC_OK;
        generation_lose(job, lost->rank, lost->pid, lost->text);
        job->standing.loss.cause = lost->cause;
        return GRADSYNC_OK;
}

static int notices_newgen(struct gradsync *gs, const Wire__Newgen *newgen) {
        struct gradsync_job *job = job_find(gs, newgen->job);

        return job ? generation_renew(job, newgen) : GRADSYNC_OK;
}

static int notices_resumed(struct gradsync *gs, const Wire__Resumed *resumed) {
        struct gradsync_job *job = job_find(gs, resumed->job);

        return job ? generation_resume(job, resumed) : GRADSYNC_OK;
}

static int notices_plan_step(struct gradsync *gs, const Wire__PlanStep *message) {
        struct gradsync_plan *plan = notices_find_plan(gs, message->job, message->plan);

        if (plan != NULL)
                step_skip(plan, message->step);
        return GRADSYNC_OK;
}

static int notices_stall(struct gradsync *gs, const Wire__Stall *stall) {
        struct gradsync_job *job = job_find(gs, stall->job);

        if (job != NULL)
                stall_note(job, stall);
        return GRADSYNC_OK;
}

int notices_take(struct gradsync *gs, uint16_t type, const ProtobufCMessage *message) {
        switch (type) {
        case WIRE__MESSAGE_TYPE__STEP: return notices_step(gs, (const Wire__Step *)message);
        case WIRE__MESSAGE_TYPE__LOST: return notices_lost(gs, (const Wire__Lost *)message);
        case WIRE__MESSAGE_TYPE__NEWGEN: return notices_newgen(gs, (const Wire__Newgen *)message);
        case WIRE__MESSAGE_TYPE__RESUMED: return notices_resumed(gs, (const Wire__Resumed *)message);
        case WIRE__MESSAGE_TYPE__PLAN_STEP: return notices_plan_step(gs, (const Wire__PlanStep *)message);
        case WIRE__MESSAGE_TYPE__RESTARTING: return GRADSYNC_OK; /* the end of the connection follows */
        case WIRE__MESSAGE_TYPE__STALL: return notices_stall(gs, (const Wire__Stall *)message);
        /* This version has no use for the notice. */
        default: return GRADSYNC_OK;
        }
}
