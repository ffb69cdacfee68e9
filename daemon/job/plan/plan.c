/* SPDX-License-Identifier: Apache-2.0 */
/* Gathering, comparing and agreeing on a plan, and giving its memory back. The open step is step.c's. */
#include "job/plan/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/nodes.h"
#include "job/plan/plan_control.h"
#include "job/plan/step.h"

#define MOST_STEPS (UINT64_C(1) << 62)

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

        if (part->place != NULL)
                return part->place[bucket];
        return (struct backend_range){ .memory = part->arena,
                                       .offset = plan->reference->bucket[bucket].offset };
}

/* Parts are begun, completed and mapped in this order; they can be given up, or be as if never begun, at any
 * time. */
void part_set_state(struct plan_part *part, enum plan_part_state state) {
        assert(state == PART_DROPPED || state == PART_NONE || state == part->state + 1 ||
               (part->state == PART_DESCRIBING &&
                state == PART_MAPPED)); /* the member has brought its memory */
        part->state = state;
}

static struct member *member_of(const struct plan *plan, uint32_t local) {
        return plan->job->local[local];
}

/* A plan that failed stays until each member has met it, so one member alone could pile them up. */
static int check_room(const struct job *job, struct refusal *refusal) {
        const struct list *link;
        unsigned n = 0;

        for (link = job->plans.next; link != &job->plans; link = link->next)
                n++;
        if (n < 2 * LIMIT_PLANS)
                return 0;
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "job '%s' has %u plans, of which some members have not heard yet; no more are possible",
                      job->name, n);
}

static int plan_new(struct job *job, uint32_t ordinal, struct plan **ret, struct refusal *refusal) {
        uint64_t parts = job->max_world * sizeof(struct plan_part); /* the world may grow so far */
        struct plan *plan;
        int r;

        r = check_room(job, refusal);
        if (r != 0)
                return r;
        plan = calloc(1, sizeof(*plan));
        if (plan == NULL)
                return -ENOMEM;
        r = charge_take(&plan->self, job->table->config.accounts, job->uid, ACCOUNT_BYTES,
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
        plan->owner.done = step_done;
        list_append(&job->plans, &plan->link);
        *ret = plan;
        return 0;
}

/* The engine may still write to it, after the plan has ended with its members. */
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
        assert(plan->tasks == 0);
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                plan_release(plan, local);
        tasks_give(&plan->job->table->tasks, &plan->owner);
        state_drop(plan->job->table->state, plan->kept);
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
        part->arena = memory_arena_free(part->arena);
        plan_control_release(part);
        memory_unclaim(part->claims);
        part->claims = NULL;
        free(part->place);
        part->place = NULL;
        charge_release(&part->arenas);
        charge_release(&part->bytes);
        charge_release(&part->fds);
        free(part->ready);
        part->ready = NULL;
        part->request = 0;
        part_set_state(part, PART_DROPPED);
        plan->dropped = true;
        member_of(plan, local)->plans--;
}

/* Nobody holds a part of it, and whoever should hear that it failed has heard it. Who came to the job later
 * may have begun behind it. */
static bool plan_over(const struct plan *plan) {
        if (plan->job->n_local == 0 && plan->exchange != NULL && !machine_is_alone(plan->job))
                return false; /* other nodes go on with it */
        for (uint32_t local = 0; local < plan->job->n_local; local++) {
                const struct plan_part *part = &plan->part[local];

                if (part->state == PART_NONE && plan->ordinal < member_of(plan, local)->next_plan)
                        continue;
                if (part->state != PART_DROPPED)
                        return false;
        }
        return true;
}

static void refuse_part(struct plan *plan, uint32_t local, const struct refusal *refusal) {
        struct plan_part *part = &plan->part[local];
        struct member *member = member_of(plan, local);
        uint32_t request = part->request;

        plan_release(plan, local);
        if (request != 0 && member->owner != NULL)
                plan->job->table->config.events->refused(member, request, refusal);
}

/* The members that hold an unanswered request are told now, the others when they come. */
static void plan_fail(struct plan *plan, const struct refusal *refusal) {
        plan->failed = true;
        plan->refusal = *refusal;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].request != 0)
                        refuse_part(plan, local, refusal);
}

/* A member met a plan that has failed: it hears why, and its part is over. */
static int answer_failed(struct plan *plan, uint32_t local, struct refusal *refusal) {
        *refusal = plan->refusal;
        plan_release(plan, local);
        if (plan_over(plan))
                plan_free(plan);
        return (int)refusal->code;
}

/* Everybody else hears it as an answer to what they have open; the caller as the answer to this request.
 * Where the others agreed in a former generation, it concerns only the one who came later: his part is as if
 * never begun. */
static int fail_for(struct plan *plan, struct member *member, const struct refusal *refusal) {
        bool dropped = plan->dropped;

        plan->part[member->local].request = 0;
        if (plan->agreed) {
                plan_release(plan, member->local);
                part_set_state(&plan->part[member->local], PART_NONE);
                plan->dropped = dropped;
                if (plan_over(plan))
                        plan_free(plan);
                return (int)refusal->code;
        }
        plan_fail(plan, refusal);
        plan_release(plan, member->local);
        if (plan_over(plan))
                plan_free(plan);
        return (int)refusal->code;
}

/* The member cannot bring the plan, so nobody will have it: whoever waits for it hears why. */
static int lose_part(struct plan *plan, struct member *member, const struct refusal *why) {
        struct refusal refusal;

        if (plan->agreed && plan->part[member->local].state != PART_MAPPED)
                return fail_for(plan, member, why);
        plan->part[member->local].request = 0;
        if (!plan->agreed && !plan->failed) {
                refuse_for(&refusal, WIRE__CODE__PLAN_MISMATCH, member->rank, (int32_t)member->pid,
                           "plan %u of job '%s': rank %u (pid %d) cannot bring it: %s", plan->ordinal,
                           plan->job->name, member->rank, (int)member->pid, why->text);
                plan_fail(plan, &refusal);
        }
        plan_release(plan, member->local);
        if (plan_over(plan))
                plan_free(plan);
        return (int)why->code;
}

int plan_begin(struct member *member, const struct offer *begin, struct refusal *refusal) {
        struct job *job = member->job;
        struct plan *plan = plan_find(job, begin->plan);
        struct plan_part *part;
        int r;

        if (begin->generation == 0 || begin->generation > job->generation)
                return refuse(refusal, WIRE__CODE__STALE, "job '%s' is in generation %u, the plan is for %u",
                              job->name, job->generation, begin->generation);
        if (nodes_check(job, refusal) != 0)
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
        }
        part = &plan->part[member->local];
        if (part->state != PART_NONE)
                return refuse(refusal, WIRE__CODE__STATE, "plan %u of job '%s' exists on rank %u already",
                              begin->plan, job->name, member->rank);
        if (begin->plan >= member->next_plan)
                member->next_plan = begin->plan + 1;
        part_set_state(part, PART_DESCRIBING);
        part->timeout = begin->timeout;
        part->deadline = begin->timeout > 0 ? clock_now() + part->timeout : UINT64_MAX;
        member->plans++;
        r = description_new(begin, job->table->config.accounts, job->uid, &part->description, refusal);
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
        int r;

        if (plan == NULL)
                return WIRE__CODE__STATE;
        r = description_add_params(plan->part[member->local].description, param, n, refusal);
        return r > 0 ? lose_part(plan, member, refusal) : r;
}

int plan_buckets(struct member *member, uint32_t ordinal, const struct offer_bucket *bucket, size_t n,
                 struct refusal *refusal) {
        struct plan *plan = describing(member, ordinal, refusal);
        int r;

        if (plan == NULL)
                return WIRE__CODE__STATE;
        r = description_add_buckets(plan->part[member->local].description, bucket, n, refusal);
        return r > 0 ? lose_part(plan, member, refusal) : r;
}

static void member_text(const struct member *member, char *text, size_t size) {
        snprintf(text, size, "rank %u (pid %d)", member->rank, (int)member->pid);
}

static int compare(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        char reference[48], other[48], difference[700];

        if (plan->reference == NULL)
                return 0;
        member_text(member_of(plan, plan->reference_local), reference, sizeof(reference));
        member_text(member, other, sizeof(other));
        if (!description_equal(plan->reference, reference, part->description, other, difference,
                               sizeof(difference)))
                return refuse_for(refusal, WIRE__CODE__PLAN_MISMATCH, member->rank, (int32_t)member->pid,
                                  "plan %u of job '%s': %s", plan->ordinal, plan->job->name, difference);
        return 0;
}

/* The first description becomes the reference; each other one is given back. */
static void keep_reference(struct plan *plan, uint32_t local) {
        struct plan_part *part = &plan->part[local];

        if (plan->reference != NULL) {
                part->description = description_free(part->description);
                return;
        }
        plan->reference = part->description;
        plan->reference_local = local;
        part->description = NULL;
}

/* Whether this part's buckets lie elsewhere than the reference says. */
static bool has_places(const struct plan *plan, const struct description *d) {
        const struct description *reference = plan->reference;

        return d->placed ||
               (reference != NULL && (reference->placed || reference->diagnosis_bytes != d->diagnosis_bytes));
}

static unsigned memories_of(const struct description *d) {
        return (d->arena_bytes > 0) + (d->control_bytes > 0);
}

static int plan_find_places(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        const struct description *d = part->description;

        part->place = calloc(d->n_buckets, sizeof(*part->place));
        if (part->place == NULL)
                return -ENOMEM;
        for (uint32_t b = 0; b < d->n_buckets; b++)
                part->place[b] =
                        (struct backend_range){ .memory = part->arena, .offset = d->bucket[b].offset };
        return d->placed ? memory_claim(member, plan, d, part->place, &part->claims, refusal) : 0;
}

/* Of this member's own: the arena and the control memory, what belongs to each bucket, and the claims. */
static uint64_t cost_of(const struct plan *plan, const struct description *d) {
        uint64_t each = sizeof(uint64_t);

        if (has_places(plan, d))
                each += sizeof(struct backend_range) + sizeof(struct memory_claim) + MEMORY_SPAN_COST;
        return d->arena_bytes + d->control_bytes + d->n_buckets * each;
}

static int charge_part(struct plan *plan, struct plan_part *part, struct refusal *refusal) {
        const struct jobs_config *config = &plan->job->table->config;
        const struct description *d = part->description;
        int r;

        r = charge_take(&part->arenas, config->accounts, plan->job->uid, ACCOUNT_ARENAS, d->arena_bytes > 0,
                        refusal);
        if (r == 0)
                r = charge_take(&part->bytes, config->accounts, plan->job->uid, ACCOUNT_BYTES,
                                cost_of(plan, d), refusal);
        if (r == 0)
                r = charge_take(&part->fds, config->accounts, plan->job->uid, ACCOUNT_FDS, memories_of(d),
                                refusal);
        if (r != 0)
                return r;
        part->ready = calloc(d->n_buckets, sizeof(uint64_t));
        return part->ready == NULL ? -ENOMEM : 0;
}

static int plan_allocate(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        const struct description *d = part->description;
        int r = charge_part(plan, part, refusal);

        if (r == 0 && d->control_bytes > 0)
                r = memory_refuse_room(plan->job, d->control_bytes, plan_control_new(part, d->control_bytes),
                                       refusal);
        if (r == 0 && d->arena_bytes > 0)
                r = memory_arena_new(plan->job, plan->job->table->config.backend, d->arena_bytes,
                                     &part->arena, refusal);
        return r == 0 && has_places(plan, d) ? plan_find_places(plan, member, refusal) : r;
}

static void part_list_memory(const struct plan_part *part, struct plan_memory *ret) {
        ret->n_fds = 0;
        ret->bytes = part->description->arena_bytes;
        if (part->arena != NULL)
                ret->fds[ret->n_fds++] = part->arena->backend->memory->fd(part->arena);
        if (part->control_bytes > 0)
                ret->fds[ret->n_fds++] = part->control;
}

int plan_commit(struct member *member, uint32_t ordinal, struct plan_memory *ret, struct refusal *refusal) {
        struct plan *plan = describing(member, ordinal, refusal);
        struct plan_part *part;
        int r;

        if (plan == NULL)
                return WIRE__CODE__STATE;
        part = &plan->part[member->local];
        r = description_complete(part->description, refusal);
        if (r != 0)
                return r > 0 ? lose_part(plan, member, refusal) : r;
        if (plan->failed)
                return answer_failed(plan, member->local, refusal);
        r = compare(plan, member, refusal);
        if (r == 0)
                r = plan_allocate(plan, member, refusal);
        if (r > 0)
                return fail_for(plan, member, refusal);
        if (r < 0)
                return r;
        part_set_state(part, PART_COMPLETE);
        part_list_memory(part, ret);
        keep_reference(plan, member->local);
        return 0;
}

void plan_record_members(struct job *job) {
        if (job->record == NULL)
                return;
        job->record->world = job->world;
        memset(job->record->pid, 0, sizeof(job->record->pid));
        for (uint32_t local = 0; local < job->n_local; local++)
                job->record->pid[job->local[local]->rank] = job->local[local]->pid;
}

/* The job's record begins with its first plan; later ones may have other members. */
static int prepare_record(struct job *job, struct refusal *refusal) {
        int r = 0;

        if (job->record == NULL)
                r = record_new(job->table->config.accounts, job->uid, job->name, &job->record, refusal);
        if (r != 0)
                return r;
        job->record->job = job->id;
        job->record->incarnation = job->incarnation;
        plan_record_members(job);
        return 0;
}

/* Its steps have a track of their own. One that some members have freed already still counts. */
static int take_track(struct plan *plan, struct refusal *refusal) {
        bool taken[LIMIT_PLANS] = { false };
        uint32_t slot = 0;
        struct plan *other;

        list_for_each(other, &plan->job->plans, link)
                if (other->agreed && other != plan)
                        taken[other->track - TRACK_STEP] = true;
        while (slot < LIMIT_PLANS && taken[slot])
                slot++;
        if (slot == LIMIT_PLANS)
                return refuse(
                        refusal, WIRE__CODE__QUOTA,
                        "job '%s' has %u plans that not all of its members have freed; no more are possible",
                        plan->job->name, LIMIT_PLANS);
        plan->track = TRACK_STEP + slot;
        return machine_reserve(plan->job, 0, plan->track + 1, refusal);
}

int plan_prepare_exchange(struct plan *plan, struct refusal *refusal) {
        struct shared_config config;

        if (plan->exchange != NULL || machine_is_alone(plan->job))
                return 0;
        config = nodes_shared(plan->job, plan->job->table->config.backend);
        return exchange_new(&config, plan->reference, plan->job->max_world, &plan->exchange, refusal);
}

struct state_key plan_key(const struct plan *plan) {
        return (struct state_key){ .uid = plan->job->uid,
                                   .job = plan->job->name,
                                   .incarnation = plan->job->incarnation,
                                   .plan = plan->ordinal,
                                   .params = plan->reference->n_params,
                                   .buckets = plan->reference->n_buckets };
}

static int prepare_buckets(struct plan *plan, struct refusal *refusal) {
        const struct jobs_config *config = &plan->job->table->config;
        const struct state_key key = plan_key(plan);
        uint32_t most = plan->job->max_world;
        uint64_t bytes = buckets_bytes(plan->reference, config->backend, most);
        int r;

        r = prepare_record(plan->job, refusal);
        if (r == 0)
                r = take_track(plan, refusal);
        if (r != 0)
                return r;
        if (plan->job->table->state != NULL)
                bytes += state_bytes(&key, most);
        r = charge_take(&plan->charge, config->accounts, plan->job->uid, ACCOUNT_BYTES, bytes, refusal);
        if (r != 0)
                return r;
        plan->bucket = buckets_new(plan->reference, config->backend, most);
        r = plan->bucket != NULL ? tasks_take(&plan->job->table->tasks, &plan->owner) : -ENOMEM;
        if (r < 0) {
                free(plan->bucket);
                plan->bucket = NULL;
                charge_release(&plan->charge); /* the next generation may try again */
                return r;
        }
        plan->kept = state_add(plan->job->table->state, &key, most);
        if (plan->job->state == JOB_RUNNING)
                state_generation(plan->kept, plan->job->generation, plan->job->n_local);
        return 0;
}

static int adopt_arena(struct plan *plan, struct plan_part *part, int *fd, struct refusal *why) {
        struct backend *backend = plan->job->table->config.backend;
        uint64_t bytes = part->description->arena_bytes;
        struct memfd_file file;
        int r = backend->memory->adopt(backend, *fd, 0, bytes, &file, &part->arena, why);

        if (r != 0)
                return r;
        *fd = -1;
        if (file.size != bytes)
                return refuse(why, WIRE__CODE__INVALID,
                              "the memory has %" PRIu64 " bytes instead of %" PRIu64, file.size, bytes);
        return 0;
}

/* The memories are there already, with the member's data: they are charged like new ones. */
static int plan_adopt(struct plan *plan, struct member *member, int *fds, unsigned n_fds,
                      struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        const struct description *d = part->description;
        struct refusal why;
        int r;

        if (n_fds != memories_of(d))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "plan %u of job '%s', rank %u: %u file descriptors came for %u memories",
                              plan->ordinal, plan->job->name, member->rank, n_fds, memories_of(d));
        r = charge_part(plan, part, refusal);
        if (r != 0)
                return r;
        if (d->control_bytes > 0)
                r = plan_control_adopt(part, &fds[n_fds - 1], d->control_bytes, &why);
        if (r == 0 && d->arena_bytes > 0)
                r = adopt_arena(plan, part, &fds[0], &why);
        if (r > 0)
                return refuse(refusal, why.code, "plan %u of job '%s', rank %u: %s", plan->ordinal,
                              plan->job->name, member->rank, why.text);
        return r == 0 && has_places(plan, d) ? plan_find_places(plan, member, refusal) : r;
}

static int check_said(const struct plan *plan, const struct member *member, const struct plan_word *said,
                      struct refusal *refusal) {
        uint32_t n = plan->part[member->local].description->n_buckets;

        if (said->launched <= n && said->step < MOST_STEPS)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "plan %u of job '%s', rank %u: %u of %u buckets of the step after %" PRIu64
                      " cannot be ready",
                      plan->ordinal, plan->job->name, member->rank, said->launched, n, said->step);
}

/* What one member brings back does not concern the others. */
static int refuse_return(struct plan *plan, const struct member *member, const struct refusal *refusal) {
        plan_release(plan, member->local);
        part_set_state(&plan->part[member->local], PART_NONE);
        return (int)refusal->code;
}

static int take_back(struct plan *plan, struct member *member, const struct plan_word *said, int *fds,
                     unsigned n_fds, struct refusal *refusal) {
        int r = description_complete(plan->part[member->local].description, refusal);

        if (r == 0)
                r = compare(plan, member, refusal);
        if (r == 0)
                r = check_said(plan, member, said, refusal);
        if (r == 0)
                r = plan_adopt(plan, member, fds, n_fds, refusal);
        if (r != 0)
                return r;
        keep_reference(plan, member->local);
        if (plan->agreed)
                return 0;
        r = prepare_buckets(plan, refusal);
        plan->agreed = r == 0;
        return r;
}

int plan_return(struct member *member, const struct plan_word *said, int *fds, unsigned n_fds,
                struct refusal *refusal) {
        struct plan *plan = describing(member, said->plan, refusal);
        struct plan_part *part;
        int r;

        if (plan == NULL)
                return WIRE__CODE__STATE;
        part = &plan->part[member->local];
        r = take_back(plan, member, said, fds, n_fds, refusal);
        if (r > 0)
                return refuse_return(plan, member, refusal);
        if (r < 0)
                return r;
        part_set_state(part, PART_MAPPED);
        part->mapped = clock_now();
        part->deadline = UINT64_MAX;
        part->said_step = said->step;
        part->said_launched = said->launched;
        return 0;
}

static bool all_mapped(const struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_MAPPED)
                        return false;
        return true;
}

static void answer_agreed(struct plan *plan, uint32_t local) {
        struct plan_part *part = &plan->part[local];
        uint32_t request = part->request;

        part->request = 0;
        part->deadline = UINT64_MAX;
        plan->job->table->config.events->plan_agreed(member_of(plan, local), request, plan);
}

static int agree(struct plan *plan, struct refusal *refusal) {
        int r = prepare_buckets(plan, refusal);

        if (r == 0)
                r = plan_prepare_exchange(plan, refusal);
        if (r < 0)
                return refuse(refusal, WIRE__CODE__NO_MEMORY,
                              "job '%s': gradsyncd has no memory for plan %u: %s", plan->job->name,
                              plan->ordinal, strerror(-r));
        if (r > 0)
                return r;
        plan->agreed = true;
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                answer_agreed(plan, local);
        return 0;
}

int plan_mapped(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal) {
        struct plan *plan = plan_find(member->job, ordinal);
        struct plan_part *part;
        int r;

        if (plan == NULL || plan->part[member->local].state != PART_COMPLETE)
                return refuse(refusal, WIRE__CODE__STATE,
                              "plan %u of job '%s' has no arena to map on rank %u", ordinal,
                              member->job->name, member->rank);
        part = &plan->part[member->local];
        if (plan->failed)
                return answer_failed(plan, member->local, refusal);
        r = part->arena != NULL ? part->arena->backend->memory->attach(part->arena, refusal) : 0;
        if (r != 0)
                return r > 0 ? fail_for(plan, member, refusal) : r;
        part_set_state(part, PART_MAPPED);
        part->mapped = clock_now();
        part->request = request;
        if (plan->agreed)
                answer_agreed(plan, member->local); /* by the others, in a former generation */
        else if (all_mapped(plan))
                r = agree(plan, refusal);
        return r > 0 ? fail_for(plan, member, refusal) : r;
}

int plan_drop(struct member *member, uint32_t ordinal, struct refusal *refusal) {
        struct plan *plan = plan_find(member->job, ordinal);
        struct plan_part *part = plan != NULL ? &plan->part[member->local] : NULL;

        if (part == NULL || part->state == PART_NONE || part->state == PART_DROPPED)
                return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' has no plan %u", member->rank,
                              member->job->name, ordinal);
        if (plan_unit(plan) != UNIT_IDLE)
                return refuse(refusal, WIRE__CODE__STATE,
                              "plan %u of job '%s' has an open step; finish it before the plan is freed",
                              ordinal, member->job->name);
        lose_part(plan, member, &(struct refusal){ .text = "it gave the plan up" });
        return 0;
}

void plan_expire(struct plan *plan, uint64_t now) {
        for (uint32_t local = 0; local < plan->job->n_local; local++) {
                struct plan_part *part = &plan->part[local];
                struct refusal refusal;
                char missing[200] = "";
                size_t used = 0;

                if (part->request == 0 || now < part->deadline)
                        continue;
                for (uint32_t other = 0; other < plan->job->n_local && used + 40 < sizeof(missing); other++)
                        if (plan->part[other].state != PART_MAPPED)
                                used += (size_t)snprintf(missing + used, sizeof(missing) - used,
                                                         "%srank %u (pid %d)", used > 0 ? ", " : "",
                                                         member_of(plan, other)->rank,
                                                         (int)member_of(plan, other)->pid);
                refuse(&refusal, WIRE__CODE__TIMEOUT,
                       "plan %u of job '%s' was not agreed within %.1f s: %s did not bring it", plan->ordinal,
                       plan->job->name, (double)part->timeout / 1e6, missing);
                plan_fail(plan, &refusal);
                return;
        }
}

void plan_break(struct plan *plan, const struct refusal *refusal) {
        if (!plan->agreed && !plan->failed)
                plan_fail(plan, refusal);
}

/* What is compared with was brought by those who are gone, and nobody who stays has been compared with it. */
static void forget_reference(struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state == PART_COMPLETE || plan->part[local].state == PART_MAPPED)
                        return;
        if (!plan->agreed && !plan->failed)
                plan->reference = description_free(plan->reference);
}

void plan_move(struct plan *plan, uint32_t before, const int64_t *from) {
        struct plan_part *old = plan->part;
        uint32_t n_local = plan->job->n_local;
        struct plan_part moved[LIMIT_LOCAL] = { 0 };
        int64_t reference = -1;

        state_generation(plan->kept, plan->job->generation, n_local);
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
        forget_reference(plan);
}

bool plan_is_held(const struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_NONE && plan->part[local].state != PART_DROPPED)
                        return true;
        return false;
}

void plan_resume(struct plan *plan) {
        struct refusal refusal;

        if (plan_over(plan) || (!plan->agreed && !plan->failed && !plan_is_held(plan))) {
                plan_free(plan);
                return;
        }
        if (plan->agreed || plan->failed || plan->dropped || !all_mapped(plan))
                return;
        if (agree(plan, &refusal) > 0)
                plan_fail(plan, &refusal);
        if (plan_over(plan))
                plan_free(plan);
}
