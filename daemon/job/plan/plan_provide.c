/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan needs once it is described: memory of each member, and all that its steps use. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan_control.h"
#include "job/plan/plan_private.h"
#include "job/plan/step.h"

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
        const struct description *d = part->description;
        int r = charges_take(&part->charges, plan->job->table->config.accounts, plan->job->uid,
                             d->arena_bytes > 0, cost_of(plan, d), memories_of(d), refusal);

        if (r != 0)
                return r;
        part->ready = calloc(d->n_buckets, sizeof(uint64_t));
        return part->ready == NULL ? -ENOMEM : 0;
}

int plan_allocate(struct plan *plan, struct member *member, struct refusal *refusal) {
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

int plan_prepare(struct plan *plan, struct refusal *refusal) {
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
        plan->owner.done = step_done;
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
int plan_adopt(struct plan *plan, struct member *member, int *fds, unsigned n_fds, struct refusal *refusal) {
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
