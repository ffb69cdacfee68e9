/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the daemon, and whom they are for. Runs with the handle's lock held; sends nothing. */
#include <stdio.h>

#include "client/lib/context.h"
#include "client/lib/fail.h"
#include "client/lib/job.h"
#include "client/lib/plan.h"

static struct gradsync_plan *find_plan(struct gradsync *gs, uint32_t handle, uint32_t ordinal) {
        struct gradsync_job *job = job_find(gs, handle);
        struct gradsync_plan *plan = job ? job->plans : NULL;

        while (plan != NULL && plan->ordinal != ordinal)
                plan = plan->next;
        return plan;
}

/* A job or plan that is gone here is no error: its last messages were on their way. */
static int route_step(struct gradsync *gs, const Wire__Step *step) {
        struct gradsync_plan *plan = find_plan(gs, step->job, step->plan);

        return plan ? step_message(plan, step) : GRADSYNC_OK;
}

static int route_lost(struct gradsync *gs, const Wire__Lost *lost) {
        struct gradsync_job *job = job_find(gs, lost->job);

        if (job != NULL)
                job_lose(job, lost->rank, lost->pid, lost->text);
        return GRADSYNC_OK;
}

static int route_newgen(struct gradsync *gs, const Wire__Newgen *newgen) {
        struct gradsync_job *job = job_find(gs, newgen->job);

        return job ? job_regenerate(job, newgen) : GRADSYNC_OK;
}

static int route_resumed(struct gradsync *gs, const Wire__Resumed *resumed) {
        struct gradsync_job *job = job_find(gs, resumed->job);

        return job ? job_resume(job, resumed) : GRADSYNC_OK;
}

static int route_plan_step(struct gradsync *gs, const Wire__PlanStep *message) {
        struct gradsync_plan *plan = find_plan(gs, message->job, message->plan);

        if (plan != NULL)
                step_skip(plan, message->step);
        return GRADSYNC_OK;
}

static int route_stall(struct gradsync *gs, const Wire__Stall *message) {
        struct gradsync_job *job = job_find(gs, message->job);
        struct stall *stall;

        if (job == NULL || gs->stall == NULL)
                return GRADSYNC_OK;
        stall = &job->stall;
        stall->step = message->step;
        stall->since_ms = message->since_ms;
        stall->rank = message->rank;
        stall->bucket = message->bucket;
        stall->pid = message->pid;
        snprintf(stall->process_state, sizeof(stall->process_state), "%s",
                 message->process_state ? message->process_state : "");
        snprintf(stall->parameter, sizeof(stall->parameter), "%s",
                 message->parameter ? message->parameter : "");
        snprintf(stall->text, sizeof(stall->text), "%s", message->text ? message->text : "");
        stall->pending = true;
        gs->stalls_pending = true;
        return GRADSYNC_OK;
}

int route_message(void *owner, const struct frame_header *header, const ProtobufCMessage *message,
                  struct fdpass_packet *packet) {
        struct gradsync *gs = owner;

        if (header->request != 0)
                return request_answered(gs, header, message, packet);
        switch (header->type) {
        case WIRE__MESSAGE_TYPE__STEP: return route_step(gs, (const Wire__Step *)message);
        case WIRE__MESSAGE_TYPE__LOST: return route_lost(gs, (const Wire__Lost *)message);
        case WIRE__MESSAGE_TYPE__NEWGEN: return route_newgen(gs, (const Wire__Newgen *)message);
        case WIRE__MESSAGE_TYPE__RESUMED: return route_resumed(gs, (const Wire__Resumed *)message);
        case WIRE__MESSAGE_TYPE__PLAN_STEP: return route_plan_step(gs, (const Wire__PlanStep *)message);
        case WIRE__MESSAGE_TYPE__RESTARTING: gs->restarting = true; return GRADSYNC_OK;
        case WIRE__MESSAGE_TYPE__STALL: return route_stall(gs, (const Wire__Stall *)message);
        default: return GRADSYNC_OK; /* a notice that this version has no use for */
        }
}
