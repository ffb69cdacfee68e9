/* SPDX-License-Identifier: Apache-2.0 */
/* Turns events of the job layer into frames for the members' clients. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"
#include "job/watch/waits.h"
#include "session/private.h"

static void events_joined(const struct member *member, const struct plan_ordinals *plans) {
        struct session *session = member->owner;
        Wire__Joined message = WIRE__JOINED__INIT;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->generation);
        SET(message, rank, member->rank);
        SET(message, local_rank, member->local_rank);
        SET(message, world, member->job->world);
        SET(message, member, member->stable);
        SET(message, incarnation, member->job->incarnation);
        SET_IF(message, first_plan, member->next_plan > 0, member->next_plan);
        if (plans->n > 0 && plans->next != plans->ordinal[0] + plans->n) {
                message.n_plan = plans->n;
                message.plan = (uint32_t *)(uintptr_t)plans->ordinal;
                SET(message, next_plan, plans->next);
        }
        SET_IF(message, history, member->job->last_step > 0 || member->job->history, true);
        message.has_secret = member->job->kept != NULL;
        message.secret = (ProtobufCBinaryData){ .len = sizeof(member->secret),
                                                .data = (uint8_t *)(uintptr_t)member->secret.byte };
        session_send(session, WIRE__MESSAGE_TYPE__JOINED, member->join_request, &message.base);
}

/* The refusal of a join that has timed out names the members that the job lacks. A node adds the hosts that
 * have none. */
static void events_refused(const struct job_event *event) {
        struct member *member = event->member;
        struct refusal longer = *event->refusal;
        size_t used = strlen(longer.text);
        char missing[600] = "";

        if (longer.code == WIRE__CODE__TIMEOUT && event->request == member->join_request)
                peers_missing(member->job, missing, sizeof(missing));
        if (missing[0] != '\0')
                snprintf(longer.text + used, sizeof(longer.text) - used, " (%s)", missing);
        if (member->owner != NULL)
                session_send_refused(member->owner, event->request, &longer);
}

static void events_answer(const struct job_event *event, uint16_t type, const ProtobufCMessage *message) {
        session_send(event->member->owner, type, event->request, message);
}

static void events_answer_memory(const struct job_event *event, uint16_t type,
                                 const ProtobufCMessage *message) {
        session_send_fds(event->member->owner, type, event->request, event->memory.fds, event->memory.n_fds,
                         message);
}

static void events_plan_arena(const struct job_event *event) {
        Wire__PlanArena message = WIRE__PLAN_ARENA__INIT;

        SET(message, job, event->job->id);
        SET(message, plan, event->plan->ordinal);
        SET(message, bytes, event->memory.bytes);
        events_answer_memory(event, WIRE__MESSAGE_TYPE__PLAN_ARENA, &message.base);
}

static void events_plan_dropped(const struct job_event *event) {
        Wire__PlanDropped message = WIRE__PLAN_DROPPED__INIT;

        SET(message, job, event->job->id);
        SET(message, plan, event->number);
        events_answer(event, WIRE__MESSAGE_TYPE__PLAN_DROPPED, &message.base);
}

static void events_staging_arena(const struct job_event *event) {
        Wire__StagingArena message = WIRE__STAGING_ARENA__INIT;

        SET(message, job, event->job->id);
        SET(message, bytes, event->memory.bytes);
        events_answer_memory(event, WIRE__MESSAGE_TYPE__STAGING_ARENA, &message.base);
}

static void events_staging_ready(const struct job_event *event) {
        Wire__StagingReady message = WIRE__STAGING_READY__INIT;

        SET(message, job, event->job->id);
        events_answer(event, WIRE__MESSAGE_TYPE__STAGING_READY, &message.base);
}

static void events_registered(const struct job_event *event) {
        Wire__Registered message = WIRE__REGISTERED__INIT;

        SET(message, job, event->job->id);
        SET(message, memory, event->number);
        events_answer(event, WIRE__MESSAGE_TYPE__REGISTERED, &message.base);
}

static void events_unregistered(const struct job_event *event) {
        Wire__Unregistered message = WIRE__UNREGISTERED__INIT;

        SET(message, job, event->job->id);
        SET(message, memory, event->number);
        events_answer(event, WIRE__MESSAGE_TYPE__UNREGISTERED, &message.base);
}

static void events_plan_agreed(const struct job_event *event) {
        Wire__PlanAgreed message = WIRE__PLAN_AGREED__INIT;

        SET(message, job, event->job->id);
        SET(message, generation, event->job->generation);
        SET(message, plan, event->plan->ordinal);
        SET(message, step, event->plan->step);
        events_answer(event, WIRE__MESSAGE_TYPE__PLAN_AGREED, &message.base);
}

static void events_operation_done(const struct job_event *event) {
        Wire__OperationDone message = WIRE__OPERATION_DONE__INIT;

        SET(message, job, event->job->id);
        SET(message, sequence, event->sequence);
        events_answer(event, WIRE__MESSAGE_TYPE__OPERATION_DONE, &message.base);
}

static void events_send_members(const struct job *job, uint16_t type, const ProtobufCMessage *message) {
        struct sessions *sessions = job_events_data(job);

        results_flush(&sessions->results); /* outcomes come before what follows them */
        for (uint32_t local = 0; local < job->n_local; local++)
                session_send(job->local[local]->owner, type, 0, message);
}

static void events_lost(const struct job *job) {
        const struct membership_loss *loss = &job->loss;
        Wire__Lost message = WIRE__LOST__INIT;

        SET(message, job, job->id);
        SET(message, generation, job->generation);
        SET_IF(message, rank, loss->pid != 0, loss->rank);
        SET_IF(message, pid, loss->pid != 0, loss->pid);
        SET(message, cause, loss->cause);
        message.text = (char *)(uintptr_t)job->loss_text;
        events_send_members(job, WIRE__MESSAGE_TYPE__LOST, &message.base);
}

static void events_newgen(const struct member *member) {
        const struct job *job = member->job;
        const struct membership_loss *loss = &job->loss;
        Wire__Newgen message = WIRE__NEWGEN__INIT;

        SET(message, job, job->id);
        SET(message, generation, job->generation);
        SET(message, rank, member->rank);
        SET(message, local_rank, member->local_rank);
        SET(message, world, job->world);
        SET(message, behind, job->behind);
        SET_IF(message, lost_rank, loss->pid != 0, loss->rank);
        SET_IF(message, lost_pid, loss->pid != 0, loss->pid);
        SET(message, cause, loss->cause);
        message.text = (char *)(uintptr_t)job->loss_text;
        if (job->takeover != NULL) {
                SET(message, operations, job->takeover->operations);
                message.has_operation_failed = message.operation_failed = job->takeover->operation_failed;
        }
        session_send(member->owner, WIRE__MESSAGE_TYPE__NEWGEN, 0, &message.base);
}

/* After the restart of another daemon operations are where they were. */
static void events_resumed(const struct member *member) {
        const struct takeover *takeover = member->job->takeover;
        Wire__Resumed message = WIRE__RESUMED__INIT;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->generation);
        SET(message, operations, takeover != NULL ? takeover->operations : member->operation.next);
        SET_IF(message, operation_failed, takeover != NULL && takeover->operation_failed, true);
        session_send(member->owner, WIRE__MESSAGE_TYPE__RESUMED, 0, &message.base);
}

static void events_plan_step(const struct job_event *event) {
        Wire__PlanStep message = WIRE__PLAN_STEP__INIT;

        SET(message, job, event->job->id);
        SET(message, plan, event->plan->ordinal);
        SET(message, step, event->plan->step);
        events_answer(event, WIRE__MESSAGE_TYPE__PLAN_STEP, &message.base);
}

/* In a frame of its own, in the generation that the member knows. */
static Wire__Step events_past_step(const struct job_event *event) {
        Wire__Step message = WIRE__STEP__INIT;

        SET(message, job, event->job->id);
        SET(message, generation, event->job->takeover->part[event->member->local].generation);
        SET(message, plan, event->plan->ordinal);
        SET(message, step, event->plan->step);
        return message;
}

static void events_past_result(const struct job_event *event) {
        const struct backend_result *from = event->result.result;
        const uint8_t *unused = event->result.unused;
        Wire__Step message = events_past_step(event);
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *list = &result;

        SET(result, bucket, event->result.bucket);
        SET(result, sum_squares, from->sum_squares);
        /* The values of ranks on other nodes have not been kept. */
        result.n_rank_sum_squares = result.n_rank_nonfinite = event->job->cluster ? 0 : from->n_inputs;
        result.rank_sum_squares = (double *)(uintptr_t)from->input_sum_squares;
        result.rank_nonfinite = (uint64_t *)(uintptr_t)from->input_nonfinite;
        result.has_unused = unused != NULL;
        result.unused = (ProtobufCBinaryData){ .len = unused != NULL ? event->result.unused_bytes : 0,
                                               .data = (uint8_t *)(uintptr_t)unused };
        message.n_result = 1;
        message.result = &list;
        events_answer(event, WIRE__MESSAGE_TYPE__STEP, &message.base);
}

static void events_past_commit(const struct job_event *event) {
        Wire__Step message = events_past_step(event);

        SET(message, outcome, WIRE__OUTCOME__COMMITTED);
        events_answer(event, WIRE__MESSAGE_TYPE__STEP, &message.base);
}

static void events_stall(const struct job *job, const struct job_wait *wait, const char *text) {
        Wire__Stall message = WIRE__STALL__INIT;

        SET(message, job, job->id);
        SET(message, generation, job->generation);
        SET(message, plan, wait->plan);
        SET(message, step, wait->step);
        SET_IF(message, rank, wait->rank != UINT32_MAX, wait->rank);
        message.host = wait->host[0] != '\0' ? (char *)wait->host : NULL;
        SET(message, pid, (int32_t)wait->pid);
        message.process_state = (char *)wait->process_state;
        SET_IF(message, bucket, wait->bucket != UINT32_MAX, wait->bucket);
        message.parameter = (char *)wait->parameter;
        SET(message, since_ms, (clock_now() - wait->since) / USEC_PER_MSEC);
        message.text = (char *)text;
        events_send_members(job, WIRE__MESSAGE_TYPE__STALL, &message.base);
}

void sessions_on_event(void *data, const struct job_event *event) {
        struct sessions *sessions = data;
        struct member *member = event->member;

        switch (event->kind) {
        case JOB_EVENT_JOINED: events_joined(member, event->plans); break;
        case JOB_EVENT_REFUSED: events_refused(event); break;
        case JOB_EVENT_PLAN_ARENA: events_plan_arena(event); break;
        case JOB_EVENT_PLAN_AGREED: events_plan_agreed(event); break;
        case JOB_EVENT_PLAN_DROPPED: events_plan_dropped(event); break;
        case JOB_EVENT_STAGING_ARENA: events_staging_arena(event); break;
        case JOB_EVENT_STAGING_READY: events_staging_ready(event); break;
        case JOB_EVENT_REGISTERED: events_registered(event); break;
        case JOB_EVENT_UNREGISTERED: events_unregistered(event); break;
        case JOB_EVENT_OPERATION_DONE: events_operation_done(event); break;
        case JOB_EVENT_RESULT: results_add(&sessions->results, event->plan, &event->result); break;
        case JOB_EVENT_COMMITTED: results_commit(&sessions->results, event->plan); break;
        case JOB_EVENT_VOID: results_void(&sessions->results, event->plan); break;
        case JOB_EVENT_LOST: events_lost(event->job); break;
        case JOB_EVENT_NEWGEN: events_newgen(member); break;
        case JOB_EVENT_RESUMED: events_resumed(member); break;
        case JOB_EVENT_PLAN_STEP: events_plan_step(event); break;
        case JOB_EVENT_PAST_RESULT: events_past_result(event); break;
        case JOB_EVENT_PAST_COMMIT: events_past_commit(event); break;
        case JOB_EVENT_STALL: events_stall(event->job, event->stall.wait, event->stall.text); break;
        case JOB_EVENT_EXPELLED:
                if (member->owner != NULL)
                        session_evict(member->owner, event->refusal);
                break;
        case JOB_EVENT_FLUSH: results_flush(&sessions->results); break;
        case JOB_EVENT_TICK: reports_show(event->job); break;
        case JOB_EVENT_ENDED: reports_job_ended(event->job); break;
        }
}
