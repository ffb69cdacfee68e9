/* SPDX-License-Identifier: Apache-2.0 */
/* What the job layer reports, turned into frames for the members' clients. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"
#include "job/watch/waits.h"
#include "session/contents.h"
#include "session/private.h"
#include "session/proof.h"

/* The latest ticket of the member, in memory that lasts until the next one; false: it needs none. */
static bool events_ticket_of(const struct member *member, ProtobufCBinaryData *ret) {
        struct session *session = member->owner;
        struct ticket ticket;

        if (!member->job->cluster || session == NULL)
                return false;
        ticket_of(member->job, &ticket);
        ret->data = session->sessions->ticket;
        ret->len = contents_pack(&ticket, session->sessions->ticket);
        return true;
}

static void events_ticket(struct member *member) {
        Wire__Ticket message = WIRE__TICKET__INIT;

        SET(message, job, member->job->id);
        message.has_ticket = events_ticket_of(member, &message.ticket);
        if (message.has_ticket)
                session_send(member->owner, WIRE__MESSAGE_TYPE__TICKET, 0, &message.base);
}

static void events_joined(struct member *member) {
        struct session *session = member->owner;
        Wire__Joined message = WIRE__JOINED__INIT;
        struct sha256 proof;
        uint32_t list[LIMIT_PLANS], next, n;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->generation);
        SET(message, rank, member->rank);
        SET(message, local_rank, member->local_rank);
        SET(message, world, member->job->world);
        SET(message, member, member->stable);
        SET(message, incarnation, member->job->incarnation);
        SET_IF(message, first_plan, member->next_plan > 0, member->next_plan);
        n = plan_list(member->job, list, &next);
        if (n > 0 && next != list[0] + n) {
                message.n_plan = n;
                message.plan = list;
                SET(message, next_plan, next);
        }
        SET(message, scope, member->job->cluster ? WIRE__SCOPE__SCOPE_CLUSTER : WIRE__SCOPE__SCOPE_HOST);
        SET_IF(message, history, member->job->last_step > 0 || member->job->history, true);
        message.has_ticket = events_ticket_of(member, &message.ticket);
        message.has_proof = proof_make(session->sessions, member->job->uid, member->job->name,
                                       member->job->incarnation, member->stable, &proof) == 0;
        message.proof = (ProtobufCBinaryData){ .len = sizeof(proof), .data = proof.byte };
        session_send(session, WIRE__MESSAGE_TYPE__JOINED, member->join_request, &message.base);
}

/* Whom the job still lacks stands in the refusal; a node knows also where they are not. */
static void events_refused(struct member *member, uint32_t request, const struct refusal *refusal) {
        struct refusal longer = *refusal;
        size_t used = strlen(longer.text);
        char missing[600] = "";

        if (refusal->code == WIRE__CODE__TIMEOUT && request == member->join_request)
                others_missing(member->job, missing, sizeof(missing));
        if (missing[0] != '\0')
                snprintf(longer.text + used, sizeof(longer.text) - used, " (%s)", missing);
        if (member->owner != NULL)
                session_send_refused(member->owner, request, &longer);
}

static void events_plan_arena(struct member *member, uint32_t request, const struct plan *plan,
                              const struct plan_memory *memory) {
        Wire__PlanArena message = WIRE__PLAN_ARENA__INIT;

        SET(message, job, member->job->id);
        SET(message, plan, plan->ordinal);
        SET(message, bytes, memory->bytes);
        session_send_fds(member->owner, WIRE__MESSAGE_TYPE__PLAN_ARENA, request, memory->fds, memory->n_fds,
                         &message.base);
}

static void events_plan_dropped(struct member *member, uint32_t request, uint32_t ordinal) {
        Wire__PlanDropped message = WIRE__PLAN_DROPPED__INIT;

        SET(message, job, member->job->id);
        SET(message, plan, ordinal);
        session_send(member->owner, WIRE__MESSAGE_TYPE__PLAN_DROPPED, request, &message.base);
}

static void events_staging(struct member *member, uint32_t request, const int *fds, unsigned n_fds,
                           uint64_t bytes) {
        Wire__StagingArena message = WIRE__STAGING_ARENA__INIT;

        SET(message, job, member->job->id);
        SET(message, bytes, bytes);
        session_send_fds(member->owner, WIRE__MESSAGE_TYPE__STAGING_ARENA, request, fds, n_fds,
                         &message.base);
}

static void events_staging_ready(struct member *member, uint32_t request) {
        Wire__StagingReady message = WIRE__STAGING_READY__INIT;

        SET(message, job, member->job->id);
        session_send(member->owner, WIRE__MESSAGE_TYPE__STAGING_READY, request, &message.base);
}

static void events_registered(struct member *member, uint32_t request, uint32_t handle) {
        Wire__Registered message = WIRE__REGISTERED__INIT;

        SET(message, job, member->job->id);
        SET(message, memory, handle);
        session_send(member->owner, WIRE__MESSAGE_TYPE__REGISTERED, request, &message.base);
}

static void events_unregistered(struct member *member, uint32_t request, uint32_t handle) {
        Wire__Unregistered message = WIRE__UNREGISTERED__INIT;

        SET(message, job, member->job->id);
        SET(message, memory, handle);
        session_send(member->owner, WIRE__MESSAGE_TYPE__UNREGISTERED, request, &message.base);
}

static void events_plan_agreed(struct member *member, uint32_t request, const struct plan *plan) {
        Wire__PlanAgreed message = WIRE__PLAN_AGREED__INIT;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->generation);
        SET(message, plan, plan->ordinal);
        SET(message, step, plan->step);
        session_send(member->owner, WIRE__MESSAGE_TYPE__PLAN_AGREED, request, &message.base);
}

static void events_operation_done(struct member *member, uint32_t request, uint64_t sequence) {
        Wire__OperationDone message = WIRE__OPERATION_DONE__INIT;

        SET(message, job, member->job->id);
        SET(message, sequence, sequence);
        SET_IF(message, number, member->job->cluster, machine_committed(member->job, TRACK_OPERATION));
        session_send(member->owner, WIRE__MESSAGE_TYPE__OPERATION_DONE, request, &message.base);
}

static struct sessions *events_sessions(const struct job *job) {
        return job_events_data(job);
}

static void events_flush(struct job *job) {
        results_flush(&events_sessions(job)->results);
}

static void events_send_members(const struct job *job, uint16_t type, const ProtobufCMessage *message) {
        results_flush(&events_sessions(job)->results); /* outcomes come before what follows them */
        for (uint32_t local = 0; local < job->n_local; local++)
                session_send(job->local[local]->owner, type, 0, message);
}

static void events_lost(struct job *job, const struct membership_loss *loss, const char *text) {
        Wire__Lost message = WIRE__LOST__INIT;

        SET(message, job, job->id);
        SET(message, generation, job->generation);
        SET_IF(message, rank, loss->pid != 0, loss->rank);
        SET_IF(message, pid, loss->pid != 0, loss->pid);
        SET(message, cause, loss->cause);
        message.text = (char *)text;
        events_send_members(job, WIRE__MESSAGE_TYPE__LOST, &message.base);
}

static void events_regenerated(struct member *member, const struct membership_loss *loss, const char *text) {
        const struct job *job = member->job;
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
        message.text = (char *)text;
        message.has_ticket = events_ticket_of(member, &message.ticket);
        if (job->takeover != NULL) {
                SET(message, operations, job->takeover->operations);
                message.has_operation_failed = message.operation_failed = job->takeover->operation_failed;
        }
        session_send(member->owner, WIRE__MESSAGE_TYPE__NEWGEN, 0, &message.base);
}

/* After the restart of another daemon operations are where they were. */
static void events_resumed(struct member *member) {
        const struct takeover *takeover = member->job->takeover;
        Wire__Resumed message = WIRE__RESUMED__INIT;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->generation);
        SET(message, operations, takeover != NULL ? takeover->operations : member->operation.next);
        SET_IF(message, operation_failed, takeover != NULL && takeover->operation_failed, true);
        message.has_ticket = events_ticket_of(member, &message.ticket);
        session_send(member->owner, WIRE__MESSAGE_TYPE__RESUMED, 0, &message.base);
}

static void events_plan_step(struct member *member, const struct plan *plan) {
        Wire__PlanStep message = WIRE__PLAN_STEP__INIT;

        SET(message, job, member->job->id);
        SET(message, plan, plan->ordinal);
        SET(message, step, plan->step);
        session_send(member->owner, WIRE__MESSAGE_TYPE__PLAN_STEP, 0, &message.base);
}

/* In a frame of its own, in the generation that the member knows. */
static Wire__Step events_past_step(const struct member *member, const struct plan *plan) {
        Wire__Step message = WIRE__STEP__INIT;

        SET(message, job, member->job->id);
        SET(message, generation, member->job->takeover->generation);
        SET(message, plan, plan->ordinal);
        SET(message, step, plan->step);
        return message;
}

static void events_past_result(struct member *member, const struct plan *plan, uint32_t bucket,
                               const struct backend_result *from, const uint8_t *unused,
                               size_t unused_bytes) {
        Wire__Step message = events_past_step(member, plan);
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *list = &result;

        SET(result, bucket, bucket);
        SET(result, sum_squares, from->sum_squares);
        /* Of ranks on other nodes nothing has been kept. */
        result.n_rank_sum_squares = result.n_rank_nonfinite = member->job->cluster ? 0 : from->n_inputs;
        result.rank_sum_squares = (double *)(uintptr_t)from->input_sum_squares;
        result.rank_nonfinite = (uint64_t *)(uintptr_t)from->input_nonfinite;
        result.has_unused = unused != NULL;
        result.unused = (ProtobufCBinaryData){ .len = unused != NULL ? unused_bytes : 0,
                                               .data = (uint8_t *)(uintptr_t)unused };
        message.n_result = 1;
        message.result = &list;
        session_send(member->owner, WIRE__MESSAGE_TYPE__STEP, 0, &message.base);
}

static void events_past_commit(struct member *member, const struct plan *plan) {
        Wire__Step message = events_past_step(member, plan);

        SET(message, outcome, WIRE__OUTCOME__COMMITTED);
        session_send(member->owner, WIRE__MESSAGE_TYPE__STEP, 0, &message.base);
}

static void events_stall(struct job *job, const struct job_wait *wait, const char *text) {
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

static void events_evict(struct member *member, const struct refusal *refusal) {
        if (member->owner != NULL)
                session_evict(member->owner, refusal);
}

static void events_told(const struct job *job, const struct hub_told *told) {
        sessions_told(events_sessions(job), told);
}

const struct jobs_events sessions_events = {
        .joined = events_joined,
        .ticket = events_ticket,
        .refused = events_refused,
        .plan_arena = events_plan_arena,
        .plan_dropped = events_plan_dropped,
        .staging = events_staging,
        .staging_ready = events_staging_ready,
        .registered = events_registered,
        .unregistered = events_unregistered,
        .plan_agreed = events_plan_agreed,
        .operation_done = events_operation_done,
        .result = results_result,
        .outcome = results_outcome,
        .lost = events_lost,
        .ended = sum_ended,
        .flush = events_flush,
        .regenerated = events_regenerated,
        .resumed = events_resumed,
        .plan_step = events_plan_step,
        .past_result = events_past_result,
        .past_commit = events_past_commit,
        .stall = events_stall,
        .evict = events_evict,
        .asked = asked_answer,
        .told = events_told,
        .inquire = others_inquire,
        .blame = others_blame,
        .entangled = others_entangled,
        .host_of = others_host_of,
        .missing = others_missing,
};
