/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One job, from its first member to the end of its last one. Which process may join, with which rank, and
 * what becomes of the other members when one goes is decided by its machine. jobs_advance() takes each of
 * these decisions, an action, to the code that carries it out.
 */
#include "job/job.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/collective.h"
#include "job/plan/plan.h"
#include "job/plan/position.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/restart/takeover.h"
#include "job/restart/verdict.h"
#include "proto/names.h"

/* The engine may have one communicator and the one before it, each in a process of its own: a socket and a
 * pidfd, and what such a process has for itself. */
#define COMM_FDS 4u
#define COMM_BYTES (4u << 20)

static void settle(void *data);
static void job_listen(struct job *job);
static void on_beat(void *data);

static int job_charge(struct job *job, size_t size, struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        bool engine = job->cluster && config->engine != NULL;
        int r = charge_take(&job->charge, config->accounts, job->uid, ACCOUNT_JOBS, 1, refusal);

        if (r == 0)
                r = charge_take(&job->self, config->accounts, job->uid, ACCOUNT_OWN,
                                size + (engine ? COMM_BYTES : 0), refusal);
        if (r == 0 && engine)
                r = charge_take(&job->fds, config->accounts, job->uid, ACCOUNT_FDS, COMM_FDS, refusal);
        return r;
}

static void job_discharge(struct job *job) {
        charge_release(&job->fds);
        charge_release(&job->self);
        charge_release(&job->charge);
}

int job_new(struct jobs *jobs, const struct job_join *join, struct job **ret, struct refusal *refusal) {
        size_t size = sizeof(struct job) + strlen(join->name) + 1;

        if (jobs->config.backend == NULL)
                return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                              "job '%s': this gradsyncd coordinates only, it has no device (device = none); "
                              "name a gradsyncd that has one: GRADSYNC_SOCKET, or GRADSYNC_DEVICE",
                              join->name);
        struct job *job = calloc(1, size);
        if (job == NULL)
                return -ENOMEM;
        list_init(&job->members);
        list_init(&job->plans);
        list_init(&job->exchanges);
        job->table = jobs;
        job->uid = join->uid;
        job->name = strcpy((char *)(job + 1), join->name);
        job->cluster = join->cluster;
        job->token = *join->token;
        job_listen(job);
        int r = job_charge(job,
                           size + (jobs->journal != NULL ? journal_job_bytes(join->membership.max_world) : 0),
                           refusal);
        if (r == 0)
                r = machine_init(job, join->membership.incarnation, on_beat, refusal);
        if (r != 0) {
                job_discharge(job);
                free(job);
                return r;
        }
        job->id = ++jobs->next_job;
        job->open = true;
        job->incarnation = join->membership.incarnation;
        job->settle = (struct loop_deferred){ .fn = settle, .data = job };
        list_append(&jobs->list, &job->link);
        *ret = job;
        return 0;
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
        job_tell(job, (struct job_event){ .kind = JOB_EVENT_ENDED });
        records_keep(&job->table->ended, job->record);
        journal_drop_job(job->table->journal, job->kept);
        loop_defer_cancel(job->table->config.loop, &job->settle);
        job_forget_state(job);
        job_discharge(job);
        list_remove(&job->link);
        machine_deinit(job);
        free(job);
        return NULL;
}

uint64_t job_next_id(struct job *job) {
        const struct node_config *node = &job->machine.node.config;

        return member_id(node->address, node->instance, ++job->table->last_id);
}

int job_ask_place(struct job *job, const struct membership_request *request, const struct tag *tag,
                  struct refusal *refusal) {
        struct asking asking = { .member = request->member, .refusal = refusal };
        int r = machine_join(job, request, tag, refusal);

        if (r != 0)
                return r;
        job->asking = &asking;
        jobs_advance(job->table);
        job->asking = NULL;
        return asking.refused ? (int)refusal->code : 0;
}

int job_add(struct job *job, const struct job_join *join, struct refusal *refusal) {
        struct membership_request request = join->membership;
        struct member *member;

        request.member = job_next_id(job);
        request.pid = (int32_t)join->pid;
        int r = takeover_is_awaiting(job) ? takeover_check_join(job, &request, refusal) : 0;
        if (r == 0)
                r = member_new(job, &member, refusal);
        if (r != 0)
                return r;
        r = job_ask_place(job, &request, &(struct tag){ 0 }, refusal);
        if (r != 0) {
                member_free(member);
                return r;
        }
        if (job->state == JOB_FORMING)
                job->max_world = request.max_world; /* for people; it may yet be refused */
        member->id = request.member;
        member->max_world = request.max_world;
        member_take(member, join);
        member->rank = request.rank;
        member->has_rank = request.has_rank;
        member->spare = request.spare;
        list_append(&job->members, &member->link);
        job_settle_later(job);
        return 0;
}

/* ---- decisions of its machine ---- */

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

/* ---- the end of a pass ---- */

static bool quiet(const struct job *job) {
        struct plan *plan;

        /* Between tasks an operation of several nodes is with the engine. */
        if (job->operation.owner.tasks > 0 ||
            (!machine_is_alone(job) && machine_unit(job, TRACK_OPERATION) != UNIT_IDLE))
                return false;
        list_for_each(plan, &job->plans, link)
                if (plan_unit(plan) != UNIT_IDLE)
                        return false;
        return true;
}

/* Gives that memory back, and tells the other members of the loss. */
static void settle_lost(struct job *job) {
        if (!quiet(job))
                return;
        job_release_lost(job, job->n_local);
        if (job->loss_told)
                return;
        job->loss_told = true;
        job_tell(job, (struct job_event){ .kind = JOB_EVENT_LOST });
}

/* Open steps of which all members have given all buckets will be committed, even if an operator holds them
 * back: their reductions start now. */
static void release_full(struct job *job) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if ((plan_unit(plan) == UNIT_OPEN || plan_unit(plan) == UNIT_COMMITTING) &&
                    plan->gate != GATE_LEFT && plan->n_full == plan->reference->n_buckets)
                        step_release(plan);
}

/* End of a loop pass in which something about the job changed. */
static void settle(void *data) {
        struct job *job = data;

        if (job->handover >= HANDOVER_OPEN)
                return;
        if (job->state != JOB_RUNNING || job_is_abandoned(job))
                release_full(job);
        jobs_advance(job->table);
        if (job->state == JOB_REPLACING && quiet(job))
                job_release_lost(job, job->n_local);
        plan_sweep(job);
        verdict_advance(job);
        jobs_advance(job->table);
        machine_wait(job, takeover_busy(job));
        jobs_advance(job->table);
        machine_wait(job, true);
        if (job->state == JOB_LOST)
                settle_lost(job);
        if (job_is_abandoned(job) && job->comm.id == 0 && quiet(job) && !takeover_busy(job)) {
                job_archive(job);
                job_free(job);
        } else {
                jobs_watch(job->table);
        }
}

/* ---- what the hub says ---- */

static struct job *attached_job(struct attachment *attachment) {
        return list_entry(attachment, struct job, machine.attachment);
}

/* The coordinator answers while it is given a report, or by itself later: then the job has to settle again. A
 * job that is left to the next daemon stays as it is: members leave already, and no generation is entered
 * without them. */
static void on_order(struct attachment *attachment, const struct order *order) {
        struct job *job = attached_job(attachment);
        struct refusal refusal;

        if (job->handover >= HANDOVER_OPEN)
                return;
        if (machine_check_order(job, order, &refusal) != 0)
                job_renounce(job, &refusal);
        else
                machine_receive(job, order);
        job_settle_later(job);
        jobs_advance(job->table);
}

static void on_placed(struct attachment *attachment) {
        struct job *job = attached_job(attachment);
        struct refusal refusal;

        if (job->machine.node.generation.number == 0) {
                machine_begin_anew(job);
        } else {
                refuse(&refusal, WIRE__CODE__MEMBER_LOST,
                       "job '%s': its coordinator does not know this node any more, and has another place "
                       "for it: restart the job from a checkpoint",
                       job->name);
                job_renounce(job, &refusal);
        }
        jobs_advance(job->table);
}

static void on_refused(struct attachment *attachment, const struct refusal *refusal) {
        struct job *job = attached_job(attachment);

        job_renounce(job, refusal);
        machine_quit(job);
        jobs_advance(job->table);
}

static void on_learn(struct attachment *attachment, const struct generation *comm, uint32_t from,
                     const void *table, size_t bytes) {
        struct job *job = attached_job(attachment);

        if (machine_builds(job, comm, from))
                collective_learn(job, from, table, bytes);
        jobs_advance(job->table);
}

static void on_posted(struct attachment *attachment, const struct hub_letter *letter) {
        struct job *job = attached_job(attachment);

        job->table->config.observer->posted(job, letter);
}

static void on_beat(void *data) {
        struct job *job = data;

        machine_tick(job);
        jobs_advance(job->table);
}

static void job_listen(struct job *job) {
        struct attachment *attachment = &job->machine.attachment;

        attachment->receive = on_order;
        attachment->placed = on_placed;
        attachment->learn = on_learn;
        attachment->refused = on_refused;
        attachment->posted = on_posted;
}

/* ---- its end ---- */

/* It ends before it has formed. */
static void job_turn_away(struct job *job, uint32_t cause, const struct refusal *refusal) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link) {
                machine_gone(job, member->id, cause);
                member_answer_join(member, refusal);
        }
        job->clues.broken = clock_now();
        job->clues.last = (struct membership_loss){ .cause = cause };
        job_settle_later(job);
}

void job_end(struct job *job, uint32_t cause) {
        struct refusal refusal;

        if (job->state == JOB_LOST)
                return; /* it has ended for another reason, which stays */
        job_tell_ended(job, cause);
        job->open = false;
        if (job->state == JOB_FORMING) {
                refuse(&refusal, WIRE__CODE__STALE, "%s", job->loss_text);
                job_turn_away(job, cause, &refusal);
                return;
        }
        job->loss = (struct membership_loss){ .cause = cause };
        job_log_loss(job);
        job_break(job, JOB_END_ENDED);
        machine_end(job, cause);
        job_settle_later(job);
}

void job_end_deadlock(struct job *job, const char *text) {
        snprintf(job->loss_text, sizeof(job->loss_text), "%s", text);
        job->open = false;
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__DEADLOCKED };
        job_log_loss(job);
        job_break(job, JOB_END_ENDED);
        machine_end(job, WIRE__CAUSE__DEADLOCKED);
        job_settle_later(job);
}

void job_renounce(struct job *job, const struct refusal *why) {
        if (job->state == JOB_LOST)
                return;
        snprintf(job->loss_text, sizeof(job->loss_text), "%.*s", (int)sizeof(job->loss_text) - 1, why->text);
        utf8_cut(job->loss_text);
        job->open = false;
        if (job->state == JOB_FORMING) {
                job_turn_away(job, WIRE__CAUSE__EVICTED, why);
                return;
        }
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__EVICTED };
        job_log_loss(job);
        job_break(job, JOB_END_ENDED);
        job_settle_later(job);
}

bool job_returns(const struct job *job) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL && !member->returns && !member_waits(member))
                        return false;
        return job->state == JOB_FORMING || job->kept != NULL;
}

void job_interrupt(struct job *job) {
        if (job->state != JOB_RUNNING)
                return;
        snprintf(job->loss_text, sizeof(job->loss_text),
                 "job '%s': gradsyncd is ending after step %llu, and could not await the next one", job->name,
                 (unsigned long long)job->last_step);
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        job->handover = HANDOVER_VOID;
        machine_end(job, WIRE__CAUSE__RESTARTED);
}

void job_leave_open(struct job *job) {
        job->handover = HANDOVER_OPEN;
        collective_give_up(job);
}

void job_hand_over(struct job *job) {
        if (job->handover != HANDOVER_OPEN)
                job->handover = HANDOVER_DONE;
}

void member_gone(struct member *member, uint32_t cause) {
        struct job *job = member->job;
        bool joining = member->state == MEMBER_JOINING;

        list_remove(&member->owner_link);
        member->owner = NULL;
        member->cause = cause;
        member_set_state(member, cause == WIRE__CAUSE__LEAVING ? MEMBER_LEFT : MEMBER_LOST);
        if (job->handover >= HANDOVER_OPEN) {
                job_settle_later(job);
                return;
        }
        if (job->takeover != NULL && !joining) {
                job->loss = (struct membership_loss){ .member = member->id,
                                                      .rank = member->rank,
                                                      .pid = (int32_t)member->pid,
                                                      .cause = cause };
                job_tell_gone(job);
        }
        if (job->state == JOB_FORMING) {
                job->clues.last = (struct membership_loss){ .pid = (int32_t)member->pid, .cause = cause };
                job->clues.refused[0] = '\0';
        }
        if (!joining)
                position_end(job);
        machine_gone(job, member->id, cause);
        if (joining)
                member_free(member);
        job_settle_later(job);
}
