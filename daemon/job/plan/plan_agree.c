/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering the descriptions of a plan, comparing them and agreeing on it; for which members it fails, and
 * why. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan_private.h"
#include "job/plan/position.h"
#include "job/plan/step.h"

#define LATE_AGAIN USEC_PER_SEC /* a time-out is said again */

/* While the job goes on. */
static void plan_end(struct plan *plan) {
        struct job *job = plan->job;
        bool agreed = plan->agreed;

        machine_forget(job, plan->ordinal);
        plan->agreed = false; /* its track has the steps from now on */
        if (agreed)
                position_keep(job);
        plan_free(plan);
}

static void plan_end_if_over(struct plan *plan) {
        if (plan_over(plan))
                plan_end(plan);
}

/* The member has no part of it any more, for that reason. Returns its code. */
static int end_part(struct plan *plan, uint32_t local, const struct refusal *why) {
        int code = (int)why->code;

        plan_release(plan, local);
        plan_end_if_over(plan);
        return code;
}

void plan_refuse(struct member *member, bool returning, uint32_t request, const struct refusal *refusal) {
        if (member->owner == NULL || (returning && member->spurned == request))
                return;
        if (returning)
                member->spurned = request;
        member_tell_refused(member, request, refusal);
}

static void refuse_part(struct plan *plan, uint32_t local, const struct refusal *refusal) {
        const struct plan_part *part = &plan->part[local];
        bool returning = part->state == PART_RETURNING;
        uint32_t request = part->request;

        plan_release(plan, local);
        plan_refuse(plan_member(plan, local), returning, request, refusal);
}

/* Members with an unanswered request are told now, the others when they ask for it. */
static void plan_fail(struct plan *plan, const struct refusal *refusal) {
        plan->failed = true;
        plan->refusal = *refusal;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].request != 0)
                        refuse_part(plan, local, refusal);
        loop_defer(plan->job->table->config.loop, &plan->job->settle);
}

/* It cannot be agreed on here: the members of other nodes hear of it, too. */
static void plan_fail_everywhere(struct plan *plan, const struct refusal *refusal) {
        struct job *job = plan->job;
        struct report_note about = { .refusal = *refusal };

        plan_fail(plan, refusal);
        if (!machine_is_alone(job) && job->state != JOB_LOST)
                machine_explain(job, plan->ordinal, NOTE_FAILED, &about);
}

void plan_reject(struct job *job, uint32_t ordinal, const struct refusal *refusal) {
        struct plan *plan = plan_find(job, ordinal);

        if (plan != NULL && !plan->agreed && !plan->failed)
                plan_fail(plan, refusal);
}

void plan_sweep(struct job *job) {
        struct plan *plan, *spare;

        list_for_each_safe(plan, spare, &job->plans, link)
                if (plan->failed)
                        plan_end_if_over(plan);
}

/* A member met a plan that has failed: it hears why, and its part is over. */
static int answer_failed(struct plan *plan, uint32_t local, struct refusal *refusal) {
        *refusal = plan->refusal;
        return end_part(plan, local, refusal);
}

/* The other members get the refusal as the answer to their open requests, the caller as the answer to this
 * request. If the others agreed on the plan in a former generation, only the member that joined later is
 * concerned: its part is as if never begun. */
static int fail_for(struct plan *plan, struct member *member, const struct refusal *refusal) {
        bool dropped = plan->dropped;

        plan->part[member->local].request = 0;
        if (plan->agreed) {
                plan_release(plan, member->local);
                part_set_state(&plan->part[member->local], PART_NONE);
                plan->dropped = dropped;
                plan_end_if_over(plan);
                return (int)refusal->code;
        }
        plan_fail_everywhere(plan, refusal);
        return end_part(plan, member->local, refusal);
}

/* The member cannot bring the plan, so no member will have it: those that wait for it are told why. */
static int lose_part(struct plan *plan, struct member *member, const struct refusal *why) {
        struct refusal refusal;

        if (plan->agreed && plan->part[member->local].state != PART_MAPPED)
                return fail_for(plan, member, why);
        plan->part[member->local].request = 0;
        if (!plan->agreed && !plan->failed) {
                refuse_for(&refusal, WIRE__CODE__PLAN_MISMATCH, member->rank, (int32_t)member->pid,
                           "plan %u of job '%s': rank %u (pid %d) cannot bring it: %s", plan->ordinal,
                           plan->job->name, member->rank, (int)member->pid, why->text);
                plan_fail_everywhere(plan, &refusal);
        }
        return end_part(plan, member->local, why);
}

/* With which others are compared: the reference, or one that is still coming; NULL: this is the first. */
static const struct description *plan_description(const struct plan *plan) {
        const struct description *found = plan->reference;

        for (uint32_t local = 0; local < plan->job->n_local && found == NULL; local++)
                found = plan->part[local].description;
        return found;
}

int plan_begin(struct member *member, const struct offer *begin, struct refusal *refusal) {
        struct job *job = member->job;
        struct plan *plan = plan_find(job, begin->plan);
        int r;

        if (begin->generation == 0 || begin->generation > job->generation)
                return refuse(refusal, WIRE__CODE__STALE, "job '%s' is in generation %u, the plan is for %u",
                              job->name, job->generation, begin->generation);
        if (begin->void_on_loss && begin->generation < job->generation)
                return refuse(refusal, WIRE__CODE__VOID_RETRY,
                              "job '%s' has gone on to generation %u, the plan is for %u", job->name,
                              job->generation, begin->generation);
        if (shared_check(job, refusal) != 0)
                return (int)refusal->code;
        if (begin->plan == UINT32_MAX)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "rank %u of job '%s': %u is no plan's ordinal, none could follow it",
                              member->rank, job->name, begin->plan);
        if (member->plans >= LIMIT_PLANS)
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "rank %u of job '%s' has %u live plans, no more are possible; free one",
                              member->rank, job->name, member->plans);
        if (plan == NULL) {
                r = plan_new(job, begin->plan, &plan, refusal);
                if (r != 0)
                        return r;
                plan->void_on_loss = begin->void_on_loss;
        }
        struct plan_part *part = &plan->part[member->local];
        if (part->state != PART_NONE)
                return refuse(refusal, WIRE__CODE__STATE, "plan %u of job '%s' exists on rank %u already",
                              begin->plan, job->name, member->rank);
        if (begin->plan >= member->next_plan)
                member->next_plan = begin->plan + 1;
        part_set_state(part, PART_DESCRIBING);
        part->timeout = begin->timeout;
        part->deadline = begin->timeout > 0 ? clock_now() + part->timeout : UINT64_MAX;
        member->plans++;
        r = description_new(begin, &job->table->parameters, job->uid, plan_description(plan),
                            &part->description, refusal);
        return r > 0 ? lose_part(plan, member, refusal) : r;
}

/* The plan that the member is describing; NULL, with *refusal, if there is none. */
static struct plan *describing(struct member *member, uint32_t ordinal, struct refusal *refusal) {
        struct plan *plan = plan_find(member->job, ordinal);

        if (plan != NULL && plan->part[member->local].state == PART_DESCRIBING)
                return plan;
        refuse(refusal, WIRE__CODE__STATE, "plan %u of job '%s' is not being described by rank %u", ordinal,
               member->job->name, member->rank);
        return NULL;
}

int plan_params(struct member *member, uint32_t ordinal, const struct offer_param *param, size_t n,
                struct refusal *refusal) {
        struct plan *plan = describing(member, ordinal, refusal);

        if (plan == NULL)
                return WIRE__CODE__STATE;
        int r = description_add_params(plan->part[member->local].description, param, n, refusal);
        return r > 0 ? lose_part(plan, member, refusal) : r;
}

int plan_buckets(struct member *member, uint32_t ordinal, const struct offer_bucket *bucket, size_t n,
                 struct refusal *refusal) {
        struct plan *plan = describing(member, ordinal, refusal);

        if (plan == NULL)
                return WIRE__CODE__STATE;
        int r = description_add_buckets(plan->part[member->local].description, bucket, n, refusal);
        return r > 0 ? lose_part(plan, member, refusal) : r;
}

static void member_text(const struct member *member, char *text, size_t size) {
        snprintf(text, size, "rank %u (pid %d)", member->rank, (int)member->pid);
}

static int compare(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        char reference[48], other[48], difference[700];
        const char *parameter;

        if (plan->reference == NULL)
                return 0;
        if (plan->agreed) /* no generation ends it any more */
                part->description->voids = plan->reference->voids;
        member_text(plan_member(plan, plan->reference_local), reference, sizeof(reference));
        member_text(member, other, sizeof(other));
        if (!description_equal(plan->reference, reference, part->description, other, difference,
                               sizeof(difference), &parameter)) {
                refuse_for(refusal, WIRE__CODE__PLAN_MISMATCH, member->rank, (int32_t)member->pid,
                           "plan %u of job '%s': %s", plan->ordinal, plan->job->name, difference);
                refuse_parameter(refusal, parameter);
                return WIRE__CODE__PLAN_MISMATCH;
        }
        return 0;
}

/* The first description becomes the reference; each other one is given back. */
static int keep_reference(struct plan *plan, uint32_t local) {
        struct plan_part *part = &plan->part[local];

        if (plan->reference != NULL) {
                part->description = description_free(part->description);
                return 0;
        }
        int r = description_settle(part->description);
        if (r < 0)
                return r;
        plan->reference = part->description;
        plan->void_on_loss = plan->reference->voids;
        plan->reference_local = local;
        part->description = NULL;
        return 0;
}

static int plan_go_on(struct plan *plan, struct member *member, int r, struct refusal *refusal);

/* Asks for the arena, if there is one. */
static int plan_ask(struct plan *plan, struct member *member, struct memory_request *what, uint64_t bytes,
                    struct refusal *refusal) {
        what->bytes = bytes;
        return plan_go_on(plan, member,
                          bytes > 0 ? holding_ask(plan->part[member->local].arena, plan->job, what, refusal)
                                    : 0,
                          refusal);
}

static void answer_arena(struct plan *plan, struct member *member) {
        struct plan_part *part = &plan->part[member->local];
        const struct memory_ops *ops = part->arena->backend->memory;
        int fds[MEMORY_FDS + 1]; /* the control segment is the last one */
        struct job_event event = {
                .kind = JOB_EVENT_PLAN_ARENA, .plan = plan, .request = part->request, .memory.fds = fds
        };

        part->request = 0;
        if (part->arena->memory != NULL) {
                ops->fds(part->arena->memory, fds);
                event.memory.n_fds = ops->n_fds;
                event.memory.bytes = ops->bytes(part->arena->memory);
        }
        fds[event.memory.n_fds++] = part->control;
        member_tell(member, event);
}

static int plan_allocated(struct plan *plan, struct member *member, int r, struct refusal *refusal) {
        if (r != 0)
                return r > 0 ? fail_for(plan, member, refusal) : r;
        part_set_state(&plan->part[member->local], PART_COMPLETE);
        answer_arena(plan, member);
        return 0;
}

int plan_commit(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal) {
        struct plan *plan = describing(member, ordinal, refusal);
        struct memory_request what = { .kind = MEMORY_SHARED };

        if (plan == NULL)
                return WIRE__CODE__STATE;
        struct plan_part *part = &plan->part[member->local];
        int r = description_complete(part->description, refusal);
        if (r != 0)
                return r > 0 ? lose_part(plan, member, refusal) : r;
        if (plan->failed)
                return answer_failed(plan, member->local, refusal);
        uint64_t bytes = part->description->arena_bytes;
        r = compare(plan, member, refusal);
        if (r == 0)
                r = plan_provide(plan, member, refusal);
        if (r == 0)
                r = keep_reference(plan, member->local);
        if (r != 0)
                return r > 0 ? fail_for(plan, member, refusal) : r;
        part_set_state(part, PART_ALLOCATING);
        part->request = request;
        return plan_ask(plan, member, &what, bytes, refusal);
}

/* A member brings back a part that cannot be used. The others keep their parts. */
static int refuse_return(struct plan *plan, const struct member *member, const struct refusal *refusal) {
        plan_release(plan, member->local);
        part_set_state(&plan->part[member->local], PART_NONE);
        plan_forget_reference(plan);
        return (int)refusal->code;
}

static void answer_agreed(struct plan *plan, uint32_t local) {
        struct plan_part *part = &plan->part[local];
        struct job_event event = { .kind = JOB_EVENT_PLAN_AGREED, .plan = plan, .request = part->request };

        part->request = 0;
        part->deadline = UINT64_MAX;
        member_tell(plan_member(plan, local), event);
}

/* Members of other nodes have steps that those here lack. */
static void plan_catch_up(struct plan *plan, uint64_t steps) {
        struct job *job = plan->job;

        job_tell(job, (struct job_event){ .kind = JOB_EVENT_FLUSH });
        plan->step = steps;
        position_commit(plan);
        if (steps > job->last_step)
                job->last_step = steps;
        for (uint32_t local = 0; local < job->n_local; local++)
                if (plan->part[local].state == PART_MAPPED && plan->part[local].request == 0)
                        member_tell(plan_member(plan, local),
                                    (struct job_event){ .kind = JOB_EVENT_PLAN_STEP, .plan = plan });
}

void plan_take_track(struct plan *plan, uint32_t track, uint64_t steps) {
        plan->track = track;
        plan->agreed = track_is_step(track) && !plan->failed;
        if (plan->agreed && steps > plan->step && !machine_is_alone(plan->job))
                plan_catch_up(plan, steps);
        if (plan->agreed)
                position_keep(plan->job);
        for (uint32_t local = 0; local < plan->job->n_local && plan->agreed; local++)
                if (plan->part[local].state == PART_MAPPED && plan->part[local].request != 0)
                        answer_agreed(plan, local);
}

/* Gives a plan that comes back its track. */
static void find_track(struct plan *plan) {
        if (machine_is_awaiting(plan->job))
                plan_take_track(plan, plan->track, 0);
        else
                machine_agree(plan->job, plan->ordinal, description_digest(plan->reference), false);
}

/* The journal has the plan in this shape, and all that any member can have heard of it. */
static int check_former(const struct plan *plan, const struct member *member, uint64_t step,
                        struct refusal *refusal) {
        const struct description *description = plan->part[member->local].description;
        const struct journal_key key = plan_key(plan, description);
        const struct journal_plan *kept = journal_find(plan->job->table->journal, &key);
        uint64_t committed = journal_trace(kept).committed;

        if (kept == NULL || !journal_fits(kept, &key, plan->job->max_world))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "plan %u of job '%s', rank %u: the journal of gradsyncd has none with %u "
                              "parameters and %u buckets",
                              plan->ordinal, plan->job->name, member->rank, description->n_params,
                              description->n_buckets);
        if (step <= committed)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "plan %u of job '%s', rank %u: the journal of gradsyncd has %" PRIu64
                      " committed steps of it, not %" PRIu64,
                      plan->ordinal, plan->job->name, member->rank, committed, step);
}

static int plan_returned(struct plan *plan, struct member *member, int r, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];

        if (r > 0)
                plan_refuse_memory(plan, member, refusal);
        if (r == 0 && !plan->agreed) {
                r = plan_prepare(plan, refusal);
                if (r == 0)
                        find_track(plan);
        }
        if (r != 0)
                return r > 0 ? refuse_return(plan, member, refusal) : r;
        part_set_state(part, PART_MAPPED);
        part->request = 0; /* only a refusal would have been answered */
        part->mapped = clock_now();
        part->deadline = UINT64_MAX;
        return 0;
}

static int plan_take_back(struct plan *plan, struct member *member, uint64_t step, int *fds, unsigned n_fds,
                          struct refusal *refusal) {
        int r = description_complete(plan->part[member->local].description, refusal);

        if (r == 0)
                r = compare(plan, member, refusal);
        if (r == 0)
                r = check_former(plan, member, step, refusal);
        return r == 0 ? plan_provide_again(plan, member, fds, n_fds, refusal) : r;
}

int plan_return(struct member *member, const struct plan_former *said, uint32_t request, int *fds,
                unsigned n_fds, struct refusal *refusal) {
        struct plan *plan = describing(member, said->plan, refusal);
        struct memory_request what = { .kind = MEMORY_RETURNED, .fds = fds };

        if (plan == NULL)
                return WIRE__CODE__STATE;
        struct plan_part *part = &plan->part[member->local];
        uint64_t bytes = part->description->arena_bytes;
        what.n_fds = n_fds - 1;
        int r = plan_take_back(plan, member, said->step, fds, n_fds, refusal);
        if (r == 0)
                r = keep_reference(plan, member->local);
        if (r != 0)
                return r > 0 ? refuse_return(plan, member, refusal) : r;
        if (!plan->agreed)
                plan->track = said->track;
        part->said_step = said->step;
        part_set_state(part, PART_RETURNING);
        part->request = request;
        return plan_ask(plan, member, &what, bytes, refusal);
}

bool plan_is_returning(const struct job *job, uint32_t local) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->part[local].state == PART_RETURNING)
                        return true;
        return false;
}

static bool all_mapped(const struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_MAPPED)
                        return false;
        return true;
}

static int agree(struct plan *plan, struct refusal *refusal) {
        int r = plan_prepare(plan, refusal);

        if (r == 0)
                r = plan_prepare_exchange(plan, step_staged, refusal);
        if (r < 0)
                return refuse(refusal, WIRE__CODE__NO_MEMORY,
                              "job '%s': gradsyncd has no memory for plan %u: %s", plan->job->name,
                              plan->ordinal, strerror(-r));
        if (r > 0)
                return r;
        machine_agree(plan->job, plan->ordinal, description_digest(plan->reference), plan->void_on_loss);
        return 0;
}

static int plan_attached(struct plan *plan, struct member *member, int r, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];

        if (r == 0) {
                part_set_state(part, PART_MAPPED);
                part->mapped = clock_now();
        }
        if (r == 0 && plan->agreed)
                answer_agreed(plan, member->local); /* by the others, in a former generation */
        else if (r == 0 && all_mapped(plan))
                r = agree(plan, refusal);
        return r > 0 ? fail_for(plan, member, refusal) : r;
}

int plan_mapped(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal) {
        struct plan *plan = plan_find(member->job, ordinal);
        int r = 0;

        if (plan == NULL || plan->part[member->local].state != PART_COMPLETE)
                return refuse(refusal, WIRE__CODE__STATE,
                              "plan %u of job '%s' has no arena to map on rank %u", ordinal,
                              member->job->name, member->rank);
        struct plan_part *part = &plan->part[member->local];
        if (plan->failed)
                return answer_failed(plan, member->local, refusal);
        part_set_state(part, PART_MAPPING);
        part->request = request;
        if (part->arena->memory != NULL)
                r = holding_ask(part->arena, plan->job, &(struct memory_request){ .kind = MEMORY_ATTACH },
                                refusal);
        return plan_go_on(plan, member, r, refusal);
}

/* Goes on when a request to the backend is answered, at once or later. */
static int plan_go_on(struct plan *plan, struct member *member, int r, struct refusal *refusal) {
        const struct plan_part *part = &plan->part[member->local];

        if (r == 0 && holding_is_busy(part->arena))
                return 0;
        switch (part->state) {
        case PART_ALLOCATING: return plan_allocated(plan, member, r, refusal);
        case PART_MAPPING: return plan_attached(plan, member, r, refusal);
        default: return plan_returned(plan, member, r, refusal);
        }
}

void plan_late(struct job *job, const struct holder *holder, const struct refusal *refusal) {
        struct plan *plan = plan_find(job, holder->number);
        struct member *member = holder_find(job, holder);
        struct plan_part *part = &plan->part[member->local];
        bool returning = part->state == PART_RETURNING;
        uint32_t request = part->request;
        struct refusal why = { 0 };

        if (member->owner == NULL)
                return; /* its part goes with it */
        if (refusal != NULL)
                why = *refusal;
        int r = plan_go_on(plan, member, refusal != NULL ? (int)why.code : 0, &why);
        if (r < 0) {
                refuse(&why, WIRE__CODE__NO_MEMORY, "job '%s': gradsyncd has no memory for plan %u: %s",
                       job->name, plan->ordinal, strerror(-r));
                refuse_return(plan, member, &why);
        }
        if (r != 0 && request != 0)
                plan_refuse(member, returning, request, &why);
}

static void plan_gone(struct member *member, uint32_t request, uint32_t ordinal) {
        member_tell(member, (struct job_event){
                                    .kind = JOB_EVENT_PLAN_DROPPED, .request = request, .number = ordinal });
}

int plan_drop(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal) {
        struct plan *plan = plan_find(member->job, ordinal);
        struct plan_part *part = plan != NULL ? &plan->part[member->local] : NULL;

        if (part == NULL || part->state == PART_NONE || part->state == PART_DROPPED)
                return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' has no plan %u", member->rank,
                              member->job->name, ordinal);
        if (plan_unit(plan) != UNIT_IDLE)
                return refuse(refusal, WIRE__CODE__STATE,
                              "plan %u of job '%s' has an open step; finish it before the plan is freed",
                              ordinal, member->job->name);
        if (part->request != 0) { /* of COMMIT or MAPPED */
                refuse(refusal, WIRE__CODE__STATE, "plan %u of job '%s' was given up by rank %u itself",
                       ordinal, member->job->name, member->rank);
                plan_refuse(member, part->state == PART_RETURNING, part->request, refusal);
        }
        bool held = part->arena != NULL;
        if (held)
                holding_answer(part->arena, request, plan_gone);
        lose_part(plan, member, &(struct refusal){ .text = "it gave the plan up" });
        if (!held)
                plan_gone(member, request, ordinal);
        return 0;
}

/* Lists the members that have not brought the plan (`awaited`), or those whose memory the backend still makes
 * ready. */
static void plan_list_missing(const struct plan *plan, bool awaited, char *text, size_t size) {
        size_t used = 0;

        text[0] = '\0';
        for (uint32_t local = 0; local < plan->job->n_local && used + 40 < size; local++) {
                const struct plan_part *part = &plan->part[local];

                if (part->state == PART_MAPPED || part_is_awaited(part) != awaited)
                        continue;
                used += (size_t)snprintf(text + used, size - used, "%srank %u (pid %d)", used > 0 ? ", " : "",
                                         plan_member(plan, local)->rank, (int)plan_member(plan, local)->pid);
        }
}

/* Members of other nodes may be missing: the coordinator finds out which, and says so on all nodes. Not for
 * ever: it may be away. */
static bool plan_expires_with_nodes(struct plan *plan, const struct plan_part *part, uint64_t now) {
        struct job *job = plan->job;
        struct report_note about = { .waited = part->timeout };

        if (machine_is_alone(job) || now >= part->deadline + job->machine.attachment.times.death)
                return false;
        if (now < plan->asked + LATE_AGAIN)
                return true;
        plan->asked = now;
        machine_explain(job, plan->ordinal, NOTE_LATE, &about);
        return true;
}

void plan_expire(struct plan *plan, uint64_t now) {
        for (uint32_t local = 0; local < plan->job->n_local; local++) {
                struct plan_part *part = &plan->part[local];
                struct refusal refusal;
                char missing[200];

                if (part->request == 0 || now < part->deadline)
                        continue;
                if (plan_expires_with_nodes(plan, part, now))
                        return;
                plan_list_missing(plan, true, missing, sizeof(missing));
                bool awaited = missing[0] != '\0';
                if (!awaited)
                        plan_list_missing(plan, false, missing, sizeof(missing));
                refuse(&refusal, WIRE__CODE__TIMEOUT,
                       "plan %u of job '%s' was not agreed within %.1f s: %s%s%s", plan->ordinal,
                       plan->job->name, (double)part->timeout / 1e6,
                       awaited              ? ""
                       : missing[0] != '\0' ? "gradsyncd has not got ready the memory of "
                                            : "members of other nodes",
                       missing, awaited || missing[0] == '\0' ? " did not bring it" : "");
                plan_fail_everywhere(plan, &refusal);
                return;
        }
}

void plan_break(struct plan *plan, const struct refusal *refusal) {
        if (!plan->agreed && !plan->failed)
                plan_fail(plan, refusal);
}

/* The members that had begun it count from there again. */
static void undo(struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_NONE)
                        plan_member(plan, local)->next_plan = plan->ordinal;
        plan_end(plan);
}

void plan_void(struct job *job) {
        struct plan *plan, *spare;

        list_for_each_safe(plan, spare, &job->plans, link)
                if (plan->void_on_loss && !plan->agreed && !plan->failed)
                        undo(plan);
}

void plan_resume(struct plan *plan) {
        struct refusal refusal;

        if (plan_over(plan) || (!plan->agreed && !plan->failed && !plan_is_held(plan))) {
                plan_end(plan);
                return;
        }
        if (plan->agreed || plan->failed || plan->dropped || !all_mapped(plan))
                return;
        if (agree(plan, &refusal) > 0)
                plan_fail_everywhere(plan, &refusal);
        plan_end_if_over(plan);
}
