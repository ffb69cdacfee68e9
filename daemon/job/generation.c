/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generations of a job, as its machine decides them: members get their places, a loss ends what they have
 * begun, and the next generation takes over plans and survivors, or there is none.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/user.h"
#include "job/plan/plan.h"
#include "job/plan/position.h"
#include "job/plan/step.h"
#include "job/private.h"
#include "job/restart/takeover.h"
#include "job/restart/verdict.h"
#include "job/watch/deadlock.h"
#include "proto/names.h"

static bool state_runs(enum job_state state) {
        return state == JOB_RUNNING || state == JOB_REPLACING;
}

void job_set_state(struct job *job, enum job_state state) {
        static const unsigned before[] = {
                [JOB_FORMING] = 0,
                [JOB_RUNNING] = 1u << JOB_FORMING | 1u << JOB_RUNNING | 1u << JOB_REPLACING,
                [JOB_REPLACING] =
                        1u << JOB_FORMING | 1u << JOB_RUNNING, /* the former: it comes from another daemon */
                [JOB_LOST] = 1u << JOB_FORMING | 1u << JOB_RUNNING | 1u << JOB_REPLACING,
        };

        assert(before[state] >> job->state & 1);
        job->charge.user->running += state_runs(state);
        job->charge.user->running -= state_runs(job->state);
        job->state = state;
}

void job_forget_state(struct job *job) {
        job->charge.user->running -= state_runs(job->state);
}

static void log_formed(const struct job *job, const char *what) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_INFO, &context, "job '%s' %s with %u members", job->name, what, job->world);
}

/* Each member takes the place that the machine has given it. */
static void take_places(struct job *job) {
        struct member *member;

        list_for_each(member, &job->members, link) {
                if (!member->next.told)
                        continue;
                member->rank = member->next.rank;
                member->has_rank = true;
                member->local_rank = member->next.slot;
                member->stable = member->next.stable;
                member_set_state(member, MEMBER_ACTIVE);
                member->next.told = false;
                member->local = member->next.local;
                job->local[member->local] = member;
        }
}

/* The member is new, and counts its plans from the first one that others still have. */
static void generation_welcome(struct member *member, const struct plan_ordinals *plans) {
        member->next_plan = plans->n > 0 ? plans->ordinal[0] : plans->next;
        member_tell(member, (struct job_event){ .kind = JOB_EVENT_JOINED, .plans = plans });
}

/* Ranks are final: all members are told. */
static void formed(struct job *job) {
        struct plan_ordinals plans;

        job_set_state(job, JOB_RUNNING);
        take_places(job);
        log_formed(job, "formed");
        position_enter(job, false);
        plan_list(job, true, &plans);
        for (uint32_t local = 0; local < job->n_local; local++)
                generation_welcome(job->local[local], &plans);
}

/* Parts of plans move with the members that stay. */
static void move_plans(struct job *job, uint32_t before) {
        int64_t from[LIMIT_LOCAL];
        struct member *member;
        struct plan *plan;

        list_for_each(member, &job->members, link)
                if (member->next.told)
                        from[member->next.local] =
                                member->state == MEMBER_ACTIVE ? (int64_t)member->local : -1;
        list_for_each(plan, &job->plans, link)
                plan_move(plan, before, from);
}

static void free_lost(struct job *job) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link)
                if (member->owner == NULL)
                        member_free(member);
}

/* Whether members here go on with the steps and operations that they had begun. They may if another daemon
 * was only restarted, or out of reach for a while. */
static bool generation_is_same(const struct job *job, uint32_t before, uint32_t before_local) {
        if (job->behind || job->world != before || job->n_local != before_local || !machine_may_resume(job))
                return false;
        for (uint32_t local = 0; local < before_local; local++)
                if (!job->local[local]->next.told || job->local[local]->next.rank != job->local[local]->rank)
                        return false;
        return true;
}

/* If nothing is void after a restart of the daemon, operations go on with their former numbers, too. */
static bool resume(struct job *job) {
        if (job->takeover == NULL || !job->takeover->resumed)
                return false;
        for (uint32_t local = 0; local < job->n_local; local++)
                job->local[local]->operation.next = job->takeover->operations;
        return true;
}

/* Called when ranks are final. A generation that begins because the job grows has no cause, and replaces no
 * member. If the lost member's generation has been followed by another one already, its rank means nothing
 * any more. */
static void note_regenerated(struct job *job, uint32_t before, const bool *fresh) {
        const struct recovery *recovery = &job->recovery;
        const struct member *successor = member_of_rank(job, recovery->rank);
        bool grown = job->state == JOB_RUNNING;
        bool replaced = !grown && before == job->world && recovery->open && recovery->regenerated == 0 &&
                        successor != NULL && fresh[successor->local];

        recovery_regenerated(&job->recovery, grown ? WIRE__CAUSE__CAUSE_NONE : job->loss.cause,
                             replaced ? (int32_t)successor->pid : 0, clock_now());
}

/* The coordinator has made the generation without these members. If it has given a reason, the message is
 * lost. */
static void generation_unseat(struct job *job, uint32_t before_local) {
        struct refusal refusal;

        for (uint32_t local = 0; local < before_local; local++) {
                struct member *member = job->local[local];

                if (member->owner == NULL || member->next.told)
                        continue;
                refuse_for(&refusal, WIRE__CODE__STALE, member->rank, (int32_t)member->pid,
                           "job '%s': rank %u (pid %d) has no place in generation %u; join anew", job->name,
                           member->rank, (int)member->pid, job->generation);
                machine_gone(job, member->id, WIRE__CAUSE__EVICTED);
                member_unseat(member, WIRE__CAUSE__EVICTED, &refusal);
        }
}

/* A new generation: members that stay are told of it, for new ones it is the answer to their join. */
static void reformed(struct job *job, uint32_t from, uint32_t before, uint32_t before_local) {
        bool fresh[LIMIT_LOCAL], all_fresh = true;
        struct plan_ordinals plans;
        struct plan *plan, *spare;
        bool same = generation_is_same(job, before, before_local);
        struct member *member;

        if (job->takeover != NULL)
                verdict_resolve(job, before, before_local);
        generation_unseat(job, before_local);
        job_release_lost(job, before_local); /* one may have gone in this pass of the loop */
        move_plans(job, before_local);
        if (job->state == JOB_RUNNING)
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s' has grown from %u to %u members after step %llu", job->name, before,
                         job->world, (unsigned long long)job->last_step);
        job->behind |= job->takeover != NULL && job->takeover->behind;
        list_for_each(member, &job->members, link)
                if (member->next.told) {
                        fresh[member->next.local] = member->state == MEMBER_JOINING;
                        all_fresh &= fresh[member->next.local];
                }
        take_places(job);
        note_regenerated(job, before, fresh);
        free_lost(job);
        if (!same)
                plan_void(job);
        plan_list(job, all_fresh, &plans);
        plan_record_members(job);
        if (!same) {
                operation_refuse_deferred(job);
                operation_restart(job);
        }
        job->resumed_from = same ? from : 0;
        for (uint32_t local = 0; local < job->n_local; local++)
                job->local[local]->operation.deferred = 0;
        job->void_steps += same ? 0 : job->untold;
        bool resumed = same || resume(job);
        struct job_event stays = { .kind = resumed ? JOB_EVENT_RESUMED : JOB_EVENT_NEWGEN };
        job_set_state(job, JOB_RUNNING);
        if (job->takeover == NULL) /* else the verdict has been logged */
                log_formed(job, "goes on");
        position_enter(job, resumed);
        if (job->takeover != NULL && !resumed)
                list_for_each(plan, &job->plans, link)
                        journal_void(plan->kept, plan->step + 1);
        for (uint32_t local = 0; local < job->n_local; local++)
                if (fresh[local])
                        generation_welcome(job->local[local], &plans);
                else
                        member_tell(job->local[local], stays);
        job->takeover = takeover_free(job->takeover);
        job->torn = false;
        job->untold = 0;
        list_for_each_safe(plan, spare, &job->plans, link)
                plan_resume(plan);
}

void job_place(struct job *job, const struct action *action) {
        struct member *member = member_of_id(job, action->member);

        if (member == NULL)
                return; /* the job has been given up meanwhile, and its members turned away */
        job->max_world = member->max_world;
        member->next = (struct next_place){
                .told = true, .rank = action->rank, .slot = action->slot, .stable = action->id
        };
}

/* Local members are numbered from 0, in the order of their ranks. */
static void number_places(struct job *job) {
        struct member *member, *other;

        job->n_local = 0;
        list_for_each(member, &job->members, link) {
                if (!member->next.told)
                        continue;
                job->n_local++;
                list_for_each(other, &job->members, link)
                        member->next.local += other->next.told && other->next.rank < member->next.rank;
        }
}

void job_entered(struct job *job, const struct action *action) {
        uint32_t from = job->generation, before = job->world, before_local = job->n_local;

        job_tell(job, (struct job_event){ .kind = JOB_EVENT_FLUSH });
        if (job->state == JOB_RUNNING)
                job->loss = (struct membership_loss){ 0 }; /* it has only grown */
        job->world = action->world;
        number_places(job);
        job->generation = action->generation.number;
        job->secret = action->secret;
        job->behind = action->behind;
        job->history |= action->number > 0;
        if (job->state == JOB_FORMING) {
                formed(job);
                return;
        }
        job->torn |= job->cluster && action->torn;
        reformed(job, from, before, before_local);
}

/* A loss that an operator ordered counts towards the operator's share of log lines, and its line serves as
 * the line about the order. */
static bool loss_is_logged(struct job *job) {
        struct member *member = member_of_id(job, job->loss.member);

        if (member == NULL || !member->evicted)
                return flood_admits(FLOOD_JOBS, job->uid, clock_now());
        member->evict_told = true;
        return flood_admits(FLOOD_ORDERS, member->evictor, clock_now());
}

void job_log_loss(struct job *job) {
        const struct membership_loss *loss = &job->loss;
        struct log_context context = LOG_CONTEXT_OF(job);

        if (!loss_is_logged(job))
                return;
        if (loss->member > 0) { /* else the job as a whole has ended */
                context.rank = loss->rank;
                context.pid = loss->pid;
        }
        context.step = (int64_t)job->last_step;
        log_write(loss->cause == WIRE__CAUSE__LEAVING ? LOG_INFO : LOG_WARNING, &context, "%s",
                  job->loss_text);
}

static const char *why_none(const struct member *member, enum job_end end) {
        const struct job *job = member->job;

        if (member_waits(member))
                return "; the job is over, and this spare has no place to wait for";
        if (end != JOB_END_TOO_FEW)
                return ""; /* the text about the end says it */
        if (job->last_step == 0 && !job->history)
                return "; too few members are left, and the job had made no step: start it again";
        return "; too few members are left: start the job again from a checkpoint";
}

/* Refuses the processes that have come for a place in the next generation: there will be none. */
static void generation_refuse_fresh(struct job *job, enum job_end end) {
        struct member *member, *spare;
        struct refusal refusal;

        list_for_each_safe(member, spare, &job->members, link) {
                if (member->state != MEMBER_JOINING)
                        continue;
                refuse(&refusal, WIRE__CODE__MEMBER_LOST, "%s%s", job->loss_text, why_none(member, end));
                member_answer_join(member, &refusal);
        }
}

/* Finds the host of a lost member, as far as it is known, if people have to look for the cause there. */
static void generation_find_place(struct job *job) {
        const struct membership_loss *loss = &job->loss;
        bool unreachable = loss->cause == WIRE__CAUSE__UNREACHABLE;
        const char *how = unreachable ? " with " : " on host ";
        char host[sizeof(job->loss_place) - sizeof(" on host ")] = "";

        if (unreachable || (loss->cause == WIRE__CAUSE__EVICTED && member_of_id(job, loss->member) == NULL))
                job->table->config.observer->host_of(job, loss, host, sizeof(host));
        snprintf(job->loss_place, sizeof(job->loss_place), "%s%s", host[0] != '\0' ? how : "", host);
}

/* The text is cut where it has no place. */
__attribute__((format(printf, 2, 3))) static void generation_say(struct job *job, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(job->loss_text, sizeof(job->loss_text), format, arguments);
        va_end(arguments);
        utf8_cut(job->loss_text);
}

void job_tell_gone(struct job *job) {
        const struct membership_loss *loss = &job->loss;
        char why[LOSS_TEXT], when[48] = "before it began", who[48] = "a node";
        const char *it = member_loss_is_eviction(job, loss, why) ? "it " : "";

        generation_find_place(job);
        if (job->state != JOB_FORMING)
                snprintf(when, sizeof(when), "after step %" PRIu64, job->last_step);
        if (loss->member != 0)
                snprintf(who, sizeof(who), "rank %" PRIu32 " (pid %d)", loss->rank, (int)loss->pid);
        if (loss->cause == WIRE__CAUSE__LEAVING)
                generation_say(job, "job '%s': %s left %s", job->name, who, when);
        else
                generation_say(job, "job '%s' lost %s%s %s: %s%s", job->name, who, job->loss_place, when, it,
                               why);
}

/* Members hear of one that has left only if they are not ready to leave themselves. */
static void generation_tell_needed(struct job *job) {
        char left[sizeof(job->loss_text)];

        memcpy(left, job->loss_text, sizeof(left));
        generation_say(job,
                       "%s, and takes part in nothing any more: all ranks have to make the same calls and as "
                       "many steps, and leave after the last one",
                       left);
}

/* There will be no other generation. Members that wait for others in this one are told now; the machine voids
 * what has been begun. */
void job_break(struct job *job, enum job_end end) {
        struct plan *plan, *spare;
        struct refusal refusal;

        if (job->loss.cause == WIRE__CAUSE__LEAVING && end == JOB_END_TOO_FEW && job->state != JOB_FORMING)
                generation_tell_needed(job);
        job_set_state(job, JOB_LOST);
        position_forget(job); /* its name may be another job's soon */
        job->clues.broken = clock_now();
        job->clues.end = end;
        job->open = false;
        generation_refuse_fresh(job, end);
        operation_refuse_void(job, &refusal);
        operation_refuse_deferred(job);
        list_for_each_safe(plan, spare, &job->plans, link) {
                if (plan->gate == GATE_LEFT)
                        plan->gate = GATE_OPEN;
                plan_break(plan, &refusal);
        }
}

/* job->loss is one that the job has to recover from; it was noticed then, or just now (0). */
static void note_loss(struct job *job, uint64_t noticed) {
        job->interrupted = clock_now();
        recovery_begin(&job->recovery, &job->loss, job->generation, job->last_step,
                       noticed != 0 ? noticed : job->interrupted);
        job_log_loss(job);
}

/* A node, or the way to it, is lost, and no member by itself: members wait for the next generation. */
static void job_cut_off(struct job *job) {
        if (job->state != JOB_RUNNING || job->handover != HANDOVER_NONE)
                return;
        snprintf(job->loss_text, sizeof(job->loss_text),
                 "job '%s': the way between its nodes broke after step %" PRIu64
                 ", and it goes on when they reach each other again",
                 job->name, job->last_step);
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        note_loss(job, 0);
        job_set_state(job, JOB_REPLACING);
        if (!machine_may_resume(job))
                machine_tear(job);
}

void job_fall_behind(struct job *job) {
        job->torn = true;
        if (job->takeover != NULL)
                job->takeover->voided = true;
        job_cut_off(job);
}

bool member_defers(struct member *member, uint32_t request, uint32_t generation) {
        struct job *job = member->job;

        if (job->state == JOB_RUNNING)
                return job->resumed_from != 0 && generation == job->resumed_from;
        if (!machine_may_resume(job) || generation != job->generation)
                return false;
        member->operation.deferred = request;
        return true;
}

/* Why a job has ended as a whole. */
static const char *whole_text(uint32_t cause) {
        switch (cause) {
        case WIRE__CAUSE__EVICTED: return "another gradsyncd has given it up, and the log there says why";
        case WIRE__CAUSE__DEADLOCKED:
                return "its members waited for each other, and the log of another gradsyncd says which";
        default: return cause_text(cause);
        }
}

void job_tell_ended(struct job *job, uint32_t cause) {
        char when[48] = "before it began";

        if (job->state != JOB_FORMING)
                snprintf(when, sizeof(when), "after step %" PRIu64, job->last_step);
        generation_say(job, "job '%s' has ended %s: %s", job->name, when, whole_text(cause));
}

/* Another daemon has ended the job as a whole; or this one, which has said why. */
static void job_end_as_told(struct job *job, const struct membership_loss *loss) {
        char text[sizeof(job->loss_text)];

        if (job->state == JOB_LOST || job->handover != HANDOVER_NONE)
                return;
        if (loss->cause == WIRE__CAUSE__DEADLOCKED && deadlock_describe(job, text, sizeof(text)))
                memcpy(job->loss_text, text, sizeof(text));
        else
                job_tell_ended(job, loss->cause);
        job->loss = *loss;
        job_log_loss(job);
        job_break(job, JOB_END_ENDED);
}

void job_interrupted(struct job *job, const struct membership_loss *loss, enum job_end end) {
        const struct member *member = member_of_id(job, loss->member);

        if (loss->member == 0 && end == JOB_END_ENDED) {
                job_end_as_told(job, loss);
                return;
        }
        if (loss->member == 0 && machine_is_alone(job))
                return; /* the daemon ends the job, and has said why */
        if (loss->member == 0) {
                job_cut_off(job);
                return;
        }
        job->loss = *loss;
        position_end(job);
        job_tell_gone(job);
        note_loss(job, member != NULL ? member->noticed : 0);
        if (end != JOB_END_NONE)
                job_break(job, end);
        else if (job->state != JOB_REPLACING) /* else its members are on their way back, or it is cut off */
                job_set_state(job, JOB_REPLACING);
}

/* Its coordinator ends it when the grace is over, or as soon as too many are lost or have left. There are two
 * clocks, and two moments of notice. */
static bool job_grace_is_over(const struct job *job) {
        return clock_now() - job->interrupted >= machine_places(&job->machine)->grace / 2;
}

static void job_log_end(const struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);
        uint64_t grace = machine_places(&job->machine)->grace;
        char who[32] = "a node", why[64] = "too few members are left";

        if (!flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                return;
        if (job->loss.member != 0)
                snprintf(who, sizeof(who), "rank %u", job->loss.rank);
        if (job_grace_is_over(job))
                snprintf(why, sizeof(why), "nobody took the place within %.1f s", (double)grace / 1e6);
        log_write(LOG_WARNING, &context, "job '%s' has ended after the loss of %s: %s", job->name, who, why);
}

void job_ended(struct job *job, const struct membership_loss *loss, enum job_end end) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (job->state == JOB_LOST || job->handover != HANDOVER_NONE)
                return;
        if (end == JOB_END_ENDED && loss->member == 0) {
                job_end_as_told(job, loss);
                return;
        }
        job_note_wait(job, job_grace_is_over(job));
        if (job->loss_text[0] == '\0') { /* members were told of no loss: it had not formed */
                job->loss = *loss;
                job_tell_gone(job);
        }
        if (end == JOB_END_NO_STATE) {
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s' has ended after step %" PRIu64
                         ": no up-to-date rank is left: restart from a checkpoint",
                         job->name, job->last_step);
                if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                        log_write(LOG_WARNING, &context, "%s", job->loss_text);
        } else {
                job_log_end(job);
        }
        job_break(job, end);
}
