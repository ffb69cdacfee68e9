/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: made, found, moved into a new generation, and freed with all that it has. */
#include "job/plan/plan.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan_control.h"
#include "job/plan/plan_private.h"

struct plan *plan_find(struct job *job, uint32_t ordinal) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->ordinal == ordinal)
                        return plan;
        return NULL;
}

struct plan *plan_on_track(const struct job *job, uint32_t track) {
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed && plan->track == track)
                        return plan;
        assert(false); /* a track is in use only while a plan's step is open on it */
        return NULL;
}

struct backend_range plan_range(const struct plan *plan, uint32_t local, uint32_t bucket) {
        const struct plan_part *part = &plan->part[local];

        struct backend_range range = { .offset = plan->reference->bucket[bucket].offset };

        if (part->place != NULL)
                range = part->place[bucket];
        if (range.memory == NULL)
                range.memory = part->arena->memory;
        return range;
}

/* Parts can be given up, or be as if never begun, at any time. */
void part_set_state(struct plan_part *part, enum plan_part_state state) {
        static const unsigned before[] = {
                [PART_NONE] = ~0u,
                [PART_DESCRIBING] = 1u << PART_NONE,
                [PART_ALLOCATING] = 1u << PART_DESCRIBING,
                [PART_COMPLETE] = 1u << PART_ALLOCATING,
                [PART_MAPPING] = 1u << PART_COMPLETE,
                [PART_RETURNING] = 1u << PART_DESCRIBING,
                [PART_MAPPED] = 1u << PART_MAPPING | 1u << PART_RETURNING,
                [PART_DROPPED] = ~0u,
        };

        assert(before[state] >> part->state & 1);
        part->state = state;
}

struct member *plan_member(const struct plan *plan, uint32_t local) {
        return plan->job->local[local];
}

/* A plan that failed stays until each member has met it, so one member alone could pile them up. */
static int check_room(const struct job *job, struct refusal *refusal) {
        unsigned n = list_length(&job->plans);

        if (n < 2 * LIMIT_PLANS)
                return 0;
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "job '%s' has %u plans, of which some members have not heard yet; no more are possible",
                      job->name, n);
}

int plan_new(struct job *job, uint32_t ordinal, struct plan **ret, struct refusal *refusal) {
        uint64_t parts = job->max_world * sizeof(struct plan_part); /* the world may grow so far */
        int r = check_room(job, refusal);

        if (r != 0)
                return r;
        struct plan *plan = calloc(1, sizeof(*plan));
        if (plan == NULL)
                return -ENOMEM;
        r = charge_take(&plan->self, job->table->config.accounts, job->uid, ACCOUNT_OWN,
                        sizeof(*plan) + parts, refusal);
        if (r == 0)
                plan->part = calloc(1, parts);
        if (plan->part == NULL) {
                charge_release(&plan->self);
                free(plan);
                return r != 0 ? r : -ENOMEM;
        }
        plan->job = job;
        plan->ordinal = ordinal;
        list_append(&job->plans, &plan->link);
        *ret = plan;
        return 0;
}

/* The engine may still write to its memory after the plan has ended. */
static void plan_retire_exchange(struct plan *plan) {
        struct job *job = plan->job;

        if (plan->exchange != NULL && machine_engine_busy(job))
                list_append(&job->exchanges, &plan->exchange->link);
        else
                exchange_free(plan->exchange);
        plan->exchange = NULL;
}

struct plan *plan_free(struct plan *plan) {
        if (plan == NULL)
                return NULL;
        assert(plan->owner.tasks == 0);
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                plan_release(plan, local);
        tasks_give(&plan->job->table->tasks, &plan->owner);
        journal_drop(plan->job->table->journal, plan->kept);
        plan_retire_exchange(plan);
        description_free(plan->reference);
        charge_release(&plan->charge);
        charge_release(&plan->self);
        list_remove(&plan->link);
        free(plan->bucket);
        free(plan->part);
        free(plan);
        return NULL;
}

void plan_release(struct plan *plan, uint32_t local) {
        struct plan_part *part = &plan->part[local];

        if (part->state == PART_NONE || part->state == PART_DROPPED)
                return;
        part->description = description_free(part->description);
        memory_unclaim(part->claims);
        part->claims = NULL;
        free(part->place);
        part->place = NULL;
        part->arena = holding_free(part->arena);
        plan_control_release(part);
        free(part->ready);
        part->ready = NULL;
        part->request = 0;
        part_set_state(part, PART_DROPPED);
        plan->dropped = true;
        plan_member(plan, local)->plans--;
}

bool plan_over(const struct plan *plan) {
        if (plan->job->n_local == 0 && plan->exchange != NULL && !machine_is_alone(plan->job))
                return false; /* other nodes go on with it */
        for (uint32_t local = 0; local < plan->job->n_local; local++) {
                const struct plan_part *part = &plan->part[local];

                if (part->state == PART_NONE && plan->ordinal < plan_member(plan, local)->next_plan)
                        continue;
                if (part->state != PART_DROPPED)
                        return false;
        }
        return true;
}

int plan_prepare_exchange(struct plan *plan, holding_done_fn late, struct refusal *refusal) {
        if (plan->exchange != NULL && exchange_has_failed(plan->exchange))
                plan->exchange = exchange_free(plan->exchange);
        if (plan->exchange != NULL || machine_is_alone(plan->job))
                return 0;
        return exchange_new(plan->job, plan->reference, plan->ordinal, late, &plan->exchange, refusal);
}

struct journal_key plan_key(const struct plan *plan, const struct description *description) {
        return (struct journal_key){ .uid = plan->job->uid,
                                     .job = plan->job->name,
                                     .incarnation = plan->job->incarnation,
                                     .token = plan->job->token.digest,
                                     .plan = plan->ordinal,
                                     .params = description->n_params,
                                     .buckets = description->n_buckets };
}

void plan_forget_reference(struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state > PART_DESCRIBING && plan->part[local].state < PART_DROPPED)
                        return;
        if (!plan->agreed && !plan->failed)
                plan->reference = description_free(plan->reference);
}

void plan_move(struct plan *plan, uint32_t before, const int64_t *from) {
        struct plan_part *old = plan->part;
        uint32_t n_local = plan->job->n_local;
        struct plan_part moved[LIMIT_LOCAL] = { 0 };
        int64_t reference = -1;

        plan->dropped = false;
        for (uint32_t local = 0; local < n_local; local++) {
                if (from[local] < 0)
                        continue;
                moved[local] = old[from[local]];
                plan->dropped |= moved[local].state == PART_DROPPED;
                if (from[local] == (int64_t)plan->reference_local)
                        reference = local;
        }
        plan->reference_local = reference >= 0 ? (uint32_t)reference : 0;
        memset(old, 0, before * sizeof(*old));
        memcpy(old, moved, n_local * sizeof(*old));
        plan_forget_reference(plan);
}

bool plan_is_held(const struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_NONE && plan->part[local].state != PART_DROPPED)
                        return true;
        return false;
}

static void plan_insert(struct plan_ordinals *list, uint32_t ordinal) {
        uint32_t at = list->n++;

        while (at > 0 && list->ordinal[at - 1] > ordinal) {
                list->ordinal[at] = list->ordinal[at - 1];
                at--;
        }
        list->ordinal[at] = ordinal;
}

static void plan_list_remote(const struct job *job, struct plan_ordinals *ret) {
        const uint32_t *kept;
        uint32_t n = machine_kept(job, &kept, &ret->next);

        for (uint32_t i = 0; i < n && i < LIMIT_PLANS; i++)
                plan_insert(ret, kept[i]);
}

static void plan_list_local(const struct job *job, struct plan_ordinals *ret) {
        const struct member *member;
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (!plan->dropped && !plan->failed && plan_is_held(plan) && ret->n < LIMIT_PLANS)
                        plan_insert(ret, plan->ordinal);
        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_ACTIVE && member->next_plan > ret->next)
                        ret->next = member->next_plan;
}

void plan_list(const struct job *job, bool remote, struct plan_ordinals *ret) {
        *ret = (struct plan_ordinals){ 0 };
        if (remote)
                plan_list_remote(job, ret);
        else
                plan_list_local(job, ret);
}
