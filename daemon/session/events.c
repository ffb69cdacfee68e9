/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns events of the job layer into frames for the members' clients. All members of a job hear the same of a
 * step, so its results and its outcome are gathered in one STEP frame per loop pass, which is packed once.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"
#include "job/watch/waits.h"
#include "session/private.h"

#define RESULT_BYTES 48u /* of a result without its per-rank values, at most */
#define TAIL_BYTES 1024u /* kept free for the outcome and its text */

static void results_deferred(void *data) {
        results_flush(data);
}

void results_init(struct results *results, struct sessions *sessions) {
        results->sessions = sessions;
        results->flush = (struct loop_deferred){ .fn = results_deferred, .data = results };
        results->job = 0;
        for (unsigned i = 0; i < LIMIT_RESULTS; i++)
                results->entry[i] = &results->entries[i];
}

void results_deinit(struct results *results) {
        loop_defer_cancel(results->sessions->config.loop, &results->flush);
}

static struct job *results_find_job(const struct jobs *jobs, uint32_t id) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->id == id)
                        return job;
        return NULL;
}

void results_flush(struct results *results) {
        struct sessions *sessions = results->sessions;

        if (results->job == 0)
                return;
        struct job *job = results_find_job(sessions->config.jobs, results->job);
        results->job = 0;
        if (job == NULL)
                return;
        ssize_t size = codec_pack(sessions->frame, WIRE__MESSAGE_TYPE__STEP, 0, 0, &results->step.base);
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct session *session = job->local[local]->owner;

                if (session != NULL && session->state == SESSION_OPEN)
                        session->ops->send(session->transport, sessions->frame, (size_t)size, NULL, 0);
        }
        if (results->step.has_outcome && results->step.outcome == WIRE__OUTCOME__VOID)
                recovery_told(&job->recovery, machine_filling(job), clock_now());
}

/* Begins with this step, and sends what was gathered of another one. */
static void results_turn_to(struct results *results, const struct plan *plan, uint64_t step) {
        bool same = results->job == plan->job->id && results->step.plan == plan->ordinal &&
                    results->step.step == step;

        if (same && !results->step.has_outcome)
                return;
        results_flush(results);
        wire__step__init(&results->step);
        results->job = plan->job->id;
        SET(results->step, job, plan->job->id);
        SET(results->step, generation, plan->job->generation);
        SET(results->step, plan, plan->ordinal);
        SET(results->step, step, step);
        results->step.result = results->entry;
        results->used_numbers = results->used_unused = results->used_bytes = 0;
        loop_defer(results->sessions->config.loop, &results->flush);
}

static bool results_fits(const struct results *results, uint32_t world, size_t unused_bytes, uint32_t bytes) {
        return results->step.n_result < LIMIT_RESULTS && results->used_numbers + world <= RESULTS_NUMBERS &&
               results->used_unused + unused_bytes <= RESULTS_UNUSED &&
               results->used_bytes + bytes + TAIL_BYTES <= FRAME_PAYLOAD_MAX;
}

/* A value for each rank of the world. Integers have none: 0. */
static void results_by_rank(const struct plan *plan, uint32_t bucket, const struct backend_result *result,
                            double *sums, uint64_t *counts) {
        const struct exchange *heard = plan_heard(plan, bucket);
        const struct job *job = plan->job;

        memset(sums, 0, job->world * sizeof(*sums));
        memset(counts, 0, job->world * sizeof(*counts));
        for (uint32_t rank = 0; heard != NULL && rank < job->world; rank++) {
                sums[rank] = heard->rank_sums[rank];
                counts[rank] = heard->rank_counts[rank];
        }
        for (uint32_t local = 0; heard == NULL && local < job->n_local; local++) {
                sums[job->local[local]->rank] = result->input_sum_squares[local];
                counts[job->local[local]->rank] = result->input_nonfinite[local];
        }
}

static void results_add(struct results *results, const struct plan *plan,
                        const struct job_event_result *event) {
        const struct backend_result *result = event->result;
        uint32_t unused_bytes = event->unused != NULL ? (uint32_t)event->unused_bytes : 0;
        bool counts = nonfinite_count(plan, event->bucket, result).ranks > 0;
        uint32_t world = plan->job->world;
        uint32_t bytes = RESULT_BYTES + world * (counts ? 18 : 8) + unused_bytes;

        results_turn_to(results, plan, plan->step + 1);
        if (!results_fits(results, world, unused_bytes, bytes)) {
                results_flush(results);
                results_turn_to(results, plan, plan->step + 1);
        }
        Wire__BucketResult *entry = results->entry[results->step.n_result++];
        wire__bucket_result__init(entry);
        SET(*entry, bucket, event->bucket);
        SET(*entry, sum_squares, result->sum_squares);
        entry->rank_sum_squares = results->sums + results->used_numbers;
        entry->rank_nonfinite = results->counts + results->used_numbers;
        results_by_rank(plan, event->bucket, result, entry->rank_sum_squares, entry->rank_nonfinite);
        entry->n_rank_sum_squares = world;
        entry->n_rank_nonfinite = counts ? world : 0;
        results->used_numbers += world;
        if (event->unused != NULL) {
                entry->has_unused = true;
                entry->unused.len = unused_bytes;
                entry->unused.data =
                        memcpy(results->unused + results->used_unused, event->unused, unused_bytes);
                results->used_unused += unused_bytes;
        }
        results->used_bytes += bytes;
}

static void results_commit(struct results *results, const struct plan *plan) {
        results_turn_to(results, plan, plan->step);
        SET(results->step, outcome, WIRE__OUTCOME__COMMITTED);
}

static void results_void(struct results *results, const struct plan *plan) {
        const struct membership_loss *loss = &plan->job->loss;

        results_turn_to(results, plan, plan->step + 1);
        SET(results->step, outcome, WIRE__OUTCOME__VOID);
        memcpy(results->text, plan->job->loss_text, sizeof(results->text));
        results->step.text = results->text;
        SET(results->step, cause, loss->cause);
        SET_IF(results->step, rank, loss->pid != 0, loss->rank);
        SET_IF(results->step, pid, loss->pid != 0, loss->pid);
}

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
