/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations outside steps. A job gathers one call of each member with the same sequence number and compares
 * them. spread.c turns them into work for the backend and the engine.
 */
#include "job/op/operation.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan.h"
#include "job/plan/position.h"
#include "proto/names.h"

/* Bytes that the call reads and writes in the member's staging memory. */
static void extent(const struct job *job, const struct operation_request *call, uint64_t *ret_input,
                   uint64_t *ret_output) {
        uint64_t world = job->world;

        *ret_input = call->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER ? world * call->bytes : call->bytes;
        *ret_output = call->kind == WIRE__OPERATION_KIND__ALLGATHER ? world * call->bytes : call->bytes;
}

static int check_ranges(const struct member *member, const struct operation_request *call,
                        struct refusal *refusal) {
        uint64_t size = member->job->table->config.staging_bytes;
        uint64_t input, output;

        if (!staging_is_attached(&member->staging))
                return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' has no staging memory yet",
                              member->rank, member->job->name);
        if (call->bytes == 0 || call->bytes > size || call->input > size || call->output > size ||
            call->input % ARENA_ALIGN != 0 || call->output % ARENA_ALIGN != 0)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "%s of job '%s': %" PRIu64 " bytes from %" PRIu64 " to %" PRIu64
                              " do not fit a staging memory of %" PRIu64,
                              operation_name(call->kind), member->job->name, call->bytes, call->input,
                              call->output, size);
        extent(member->job, call, &input, &output);
        if (input > size - call->input || output > size - call->output)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "%s of job '%s': %" PRIu64
                              " bytes for each of %u members do not fit a staging memory of %" PRIu64,
                              operation_name(call->kind), member->job->name, call->bytes, member->job->world,
                              size);
        if (call->input == call->output && input == output)
                return 0;
        if (call->input < call->output + output && call->output < call->input + input)
                return refuse(refusal, WIRE__CODE__INVALID, "%s of job '%s': input and output overlap",
                              operation_name(call->kind), member->job->name);
        return 0;
}

static int check_call(const struct member *member, const struct operation_request *call,
                      struct refusal *refusal) {
        const char *job = member->job->name;

        if (member->operation.pending)
                return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' is in an operation already",
                              member->rank, job);
        if (call->sequence != member->operation.next)
                return refuse(refusal, WIRE__CODE__STATE,
                              "rank %u of job '%s': operation %" PRIu64 " came while %" PRIu64 " is the next",
                              member->rank, job, call->sequence, member->operation.next);
        if (shared_check(member->job, refusal) != 0)
                return (int)refusal->code;
        if (call->kind == WIRE__OPERATION_KIND__BARRIER)
                return 0;
        if (call->kind == WIRE__OPERATION_KIND__OPERATION_NONE ||
            call->kind > WIRE__OPERATION_KIND__ALLREDUCE)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': unknown operation %u", job,
                              call->kind);
        if (call->sealed && !spread_can_be_sealed(call->kind))
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': the %s has no seals", job,
                              operation_name(call->kind));
        if (call->kind == WIRE__OPERATION_KIND__BROADCAST && call->root >= member->job->world)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': broadcast from rank %u of %u", job,
                              call->root, member->job->world);
        if (spread_reduces(call->kind)) {
                if (dtype_size(call->dtype) == 0 || !reduce_valid(call->reduce, call->dtype))
                        return refuse(refusal, WIRE__CODE__INVALID, "job '%s': the %s of %s is not defined",
                                      job, reduce_name(call->reduce), dtype_name(call->dtype));
                if (call->bytes % ARENA_ALIGN != 0 && call->kind == WIRE__OPERATION_KIND__REDUCE_SCATTER)
                        return refuse(refusal, WIRE__CODE__INVALID,
                                      "job '%s': a part of a reduce-scatter is a multiple of %u bytes", job,
                                      ARENA_ALIGN);
                if (call->bytes % dtype_size(call->dtype) != 0)
                        return refuse(refusal, WIRE__CODE__INVALID,
                                      "job '%s': %" PRIu64 " bytes are no whole number of elements of %s",
                                      job, call->bytes, dtype_name(call->dtype));
        }
        if (call->kind == WIRE__OPERATION_KIND__ALLGATHER && call->bytes % ARENA_ALIGN != 0)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': a part of an allgather is a multiple of %u bytes", job, ARENA_ALIGN);
        return check_ranges(member, call, refusal);
}

static bool same_call(const struct job *job, const struct operation_request *a,
                      const struct operation_request *b) {
        if (a->kind != b->kind || a->bytes != b->bytes || a->total != b->total || a->offset != b->offset)
                return false;
        if (spread_is_sealed(job, a) != spread_is_sealed(job, b))
                return false;
        if (a->kind == WIRE__OPERATION_KIND__BROADCAST)
                return a->root == b->root;
        return !spread_reduces(a->kind) || (a->dtype == b->dtype && a->reduce == b->reduce);
}

static void call_text(const struct operation_request *call, char *text, size_t size) {
        const char *sealed = call->sealed ? "sealed " : "";

        if (call->kind == WIRE__OPERATION_KIND__BARRIER)
                snprintf(text, size, "barrier");
        else if (call->kind == WIRE__OPERATION_KIND__BROADCAST)
                snprintf(text, size, "%sbroadcast of %" PRIu64 " bytes from rank %u", sealed, call->total,
                         call->root);
        else if (spread_reduces(call->kind))
                snprintf(text, size, "%s of %" PRIu64 " bytes of %s, %s", operation_name(call->kind),
                         call->total, dtype_name(call->dtype), reduce_name(call->reduce));
        else
                snprintf(text, size, "%s%s of %" PRIu64 " bytes", sealed, operation_name(call->kind),
                         call->total);
}

void operation_describe(const struct job *job, char *text, size_t size) {
        const struct operation_request *call = &job->operation.first;
        char what[128];

        call_text(call, what, sizeof(what));
        snprintf(text, size, "operation %" PRIu64 ", %s", call->sequence, what);
}

static struct member *first_caller(const struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->operation.pending)
                        return job->local[local];
        return NULL;
}

static void answer_refused(struct member *member, const struct refusal *refusal) {
        uint32_t request = member->operation.request;

        member->operation.pending = false;
        member->operation.next++;
        if (member->owner != NULL)
                member_tell_refused(member, request, refusal);
}

/* All members that have called are told; the job is free for the next operation. */
static void refuse_pending(struct job *job, const struct refusal *refusal) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->operation.pending)
                        answer_refused(job->local[local], refusal);
        job->operation.n_calls = 0;
}

/* The call differs from those gathered: the operation fails for all members, also for those that call
 * later. */
static void mismatch(struct job *job, struct member *member, const struct operation_request *call) {
        struct operation *operation = &job->operation;
        const struct member *other = first_caller(job);
        char mine[128], theirs[128];

        call_text(call, mine, sizeof(mine));
        call_text(&operation->first, theirs, sizeof(theirs));
        refuse_for(&operation->refusal, WIRE__CODE__OPERATION_MISMATCH, member->rank, (int32_t)member->pid,
                   "job '%s', operation %" PRIu64 ": rank %u (pid %d) calls %s, rank %u (pid %d) calls %s",
                   job->name, call->sequence, member->rank, (int)member->pid, mine, other->rank,
                   (int)other->pid, theirs);
        operation->dead = call->sequence + 1;
        operation->differs = true;
        machine_say(job, TRACK_OPERATION, node_differ);
}

static void finish(struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct member *member = job->local[local];

                member->operation.pending = false;
                member->operation.next++;
                if (member->owner != NULL)
                        member_tell(member,
                                    (struct job_event){ .kind = JOB_EVENT_OPERATION_DONE,
                                                        .request = member->operation.request,
                                                        .sequence = member->operation.call.sequence });
        }
        job->operation.n_calls = 0;
        job->operations++;
}

/* One without members here has no number. */
static void operation_resolve_stall(struct job *job) {
        const struct operation_request *call = &job->operation.first;
        char what[96];

        if (job->operation.stalled.number == 0)
                return;
        snprintf(what, sizeof(what), "operation %" PRIu64 ", %s", call->sequence, operation_name(call->kind));
        stalled_end(&job->operation.stalled, job, call->sequence + 1, what);
}

/* Before members hear of it. */
static void operation_keep(struct job *job) {
        const struct journal_ended ended = { .number = machine_committed(job, TRACK_OPERATION),
                                             .sequence = job->local[0]->operation.next + 1,
                                             .failed = job->operation.failed };

        journal_end_operation(job->kept, &ended);
}

/* It ends in the same way for all members here, also if it has failed. */
void operation_committed(struct job *job) {
        if (job->n_local > 0)
                operation_keep(job);
        if (job->n_local > 0 && !job->operation.failed)
                operation_resolve_stall(job);
        if (job->operation.failed)
                refuse_pending(job, &job->operation.refusal);
        else
                finish(job);
}

void operation_deinit(struct job *job) {
        assert(job->operation.owner.tasks == 0);
        shared_deinit(&job->operation.spread.memory);
        tasks_give(&job->table->tasks, &job->operation.owner);
}

/* All members here have called. */
static void operation_run(struct job *job) {
        if (machine_is_alone(job)) {
                spread_here(job);
                return;
        }
        machine_full(job, TRACK_OPERATION);
        machine_offer(job, TRACK_OPERATION);
}

/* While all jobs are held, a step that is open may need this operation to come to its end. */
static enum gate operation_gate(const struct job *job) {
        struct plan *plan;

        if (machine_unit(job, TRACK_OPERATION) == UNIT_WANTED)
                return GATE_GENERATION;
        if (job->paused_at != 0)
                return GATE_PAUSED;
        if (job->table->gate != GATE_HELD)
                return GATE_OPEN;
        list_for_each(plan, &job->plans, link)
                if (plan_is_open(plan) && plan->gate != GATE_HELD)
                        return GATE_OPEN;
        return GATE_HELD;
}

int operation_refuse_void(const struct job *job, struct refusal *refusal) {
        const struct membership_loss *loss = &job->loss;

        if (job->state == JOB_LOST && loss->cause == WIRE__CAUSE__DEADLOCKED)
                return refuse(refusal, WIRE__CODE__DEADLOCK, "%s", job->loss_text);
        if (job->state == JOB_LOST)
                return refuse_for(refusal, WIRE__CODE__MEMBER_LOST, loss->rank, loss->pid,
                                  "%s; the job is over", job->loss_text);
        if (job->state == JOB_REPLACING)
                return refuse_for(refusal, WIRE__CODE__VOID_RETRY, loss->rank, loss->pid,
                                  "%s; call again in the next generation", job->loss_text);
        return refuse(refusal, WIRE__CODE__VOID_RETRY,
                      "job '%s' takes in a new member; call again in the next generation", job->name);
}

/* False: the generation is over. */
static bool operation_begin(struct job *job) {
        struct operation *operation = &job->operation;

        operation->since = clock_now();
        operation->failed = operation->stalled.told = operation->differs = false;
        operation->spread.phase = SPREAD_GATHERS;
        return machine_open(job, TRACK_OPERATION, 2);
}

int operation_call(struct member *member, uint32_t request, const struct operation_request *call,
                   struct refusal *refusal) {
        struct job *job = member->job;
        struct operation *operation = &job->operation;

        if (job->cluster && job->handover >= HANDOVER_OPEN)
                return 0; /* it calls again at the next daemon, which knows of all that had begun here */
        int r = check_call(member, call, refusal);
        if (r == 0)
                r = spread_prepare(job, refusal);
        if (r != 0)
                return r;
        if (call->sequence >= operation->dead && operation->n_calls > 0 &&
            !same_call(job, &operation->first, call))
                mismatch(job, member, call);
        if (call->sequence < operation->dead) {
                member->operation.next++;
                *refusal = operation->refusal;
                return (int)refusal->code;
        }
        if (operation->n_calls == 0 && !operation_begin(job)) {
                r = operation_refuse_void(job, refusal);
                return job->handover != HANDOVER_NONE ? 0 : r;
        }
        bool begins = operation->n_calls++ == 0;
        if (begins)
                operation->first = *call;
        member->operation.call = *call;
        member->operation.pending = true;
        member->operation.request = request;
        if (!begins && operation->n_calls == job->n_local && operation_gate(job) == GATE_OPEN)
                operation_run(job); /* else it runs once it is open */
        return 0;
}

void operation_release(struct job *job) {
        struct operation *operation = &job->operation;

        if (job->state != JOB_RUNNING || operation->n_calls == 0 || operation->owner.tasks > 0 ||
            machine_unit(job, TRACK_OPERATION) == UNIT_WANTED)
                return;
        operation->since = clock_now();
        if (operation->n_calls == job->n_local)
                operation_run(job);
}

void operation_opened(struct job *job) {
        if (job->n_local == 0)
                machine_offer(job, TRACK_OPERATION);
        else if (operation_gate(job) == GATE_OPEN)
                operation_release(job);
}

/* Only on several nodes something of it may have been given to the backend. */
void operation_cancel(struct job *job) {
        if (job->operation.owner.tasks == 0)
                spread_let_go(job);
}

/* Its members have nothing of it, and are going to call it again: unless the next generation is another one,
 * in which they are told that it is void. */
static void operation_defer_calls(struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct operation_part *part = &job->local[local]->operation;

                if (part->pending)
                        part->deferred = part->request;
                part->pending = false;
        }
        job->operation.n_calls = 0;
}

void operation_voided(struct job *job) {
        struct refusal refusal;

        if (spread_can_wait(job)) {
                operation_defer_calls(job);
                return;
        }
        job->torn = true;
        position_end(job);
        if (job->operation.differs)
                refusal = job->operation.refusal;
        else
                operation_refuse_void(job, &refusal);
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->operation.pending)
                        job->local[local]->waits_in = job->generation;
        if (job->handover == HANDOVER_NONE) /* else its members call again at the next daemon */
                refuse_pending(job, &refusal);
        job->operation.n_calls = 0;
}

void operation_refuse_deferred(struct job *job) {
        struct refusal refusal;
        struct member *member;

        operation_refuse_void(job, &refusal);
        list_for_each(member, &job->members, link) {
                uint32_t request = member->operation.deferred;

                member->operation.deferred = 0;
                if (request != 0 && member->owner != NULL)
                        member_tell_refused(member, request, &refusal);
        }
}

void operation_restart(struct job *job) {
        assert(job->operation.owner.tasks == 0);
        job->operation.dead = 0;
        job->operation.n_calls = 0;
        for (uint32_t local = 0; local < job->n_local; local++)
                job->local[local]->operation = (struct operation_part){ 0 };
}

bool operation_is_under_way(const struct job *job) {
        return !machine_is_alone(job) && job->n_local > 0 && job->operation.n_calls == job->n_local &&
               machine_unit(job, TRACK_OPERATION) == UNIT_OPEN;
}

int operation_follow(struct job *job) {
        struct refusal refusal;

        if (job->n_local > 0 || machine_is_alone(job) || machine_unit(job, TRACK_OPERATION) != UNIT_IDLE)
                return 0;
        int r = spread_prepare(job, &refusal);
        if (r == 0)
                operation_begin(job);
        return r > 0 ? -EDQUOT : r;
}

/* Members of this node have called the same, so all that is known is that another node's have not. */
static void operation_differs(struct job *job) {
        struct operation *operation = &job->operation;
        char text[128];

        call_text(&operation->first, text, sizeof(text));
        refuse(&operation->refusal, WIRE__CODE__OPERATION_MISMATCH,
               "job '%s', operation %" PRIu64 ": members of another node call something else than the %s "
               "that is called here",
               job->name, operation->first.sequence, text);
        operation->dead = operation->first.sequence + 1;
        operation->differs = true;
}

int operation_compared(struct job *job, bool same, const struct comm_words *words) {
        if (!same && job->n_local > 0 && job->machine.node.phase == NODE_RUNNING) /* else it is only void */
                operation_differs(job);
        return spread_compared(job, same, words);
}
