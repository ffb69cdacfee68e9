/* SPDX-License-Identifier: Apache-2.0 */
/* Provides what a plan needs once it is described: memory of each member, and all that its steps use. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan_control.h"
#include "job/plan/plan_private.h"
#include "job/plan/position.h"
#include "job/plan/step.h"

/* Whether this part's buckets lie elsewhere than the reference says. */
static bool has_places(const struct plan *plan, const struct description *d) {
        return d->placed || (plan->reference != NULL && plan->reference->placed);
}

/* How many fds the member gets, or brings back: the arena's, then the control memory's. */
static unsigned memories_of(const struct backend *backend, const struct description *d) {
        return (d->arena_bytes > 0 ? backend->memory->n_fds : 0) + 1;
}

static int plan_find_places(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        const struct description *d = part->description;

        part->place = calloc(d->n_buckets, sizeof(*part->place));
        if (part->place == NULL)
                return -ENOMEM;
        for (uint32_t b = 0; b < d->n_buckets; b++)
                part->place[b].offset = d->bucket[b].offset;
        return d->placed ? memory_claim(member, plan, d, part->place, &part->claims, refusal) : 0;
}

/* Bytes that the daemon needs of its own: those of each bucket, and the claims. */
static uint64_t plan_own_bytes(const struct plan *plan, const struct description *d) {
        uint64_t each = sizeof(uint64_t);

        if (has_places(plan, d))
                each += sizeof(struct backend_range) + sizeof(struct memory_claim) + MEMORY_SPAN_COST;
        return d->n_buckets * each;
}

/* All that the part needs besides its memory, and the charges. */
static int provide_part(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct backend *backend = plan->job->table->config.backend;
        struct plan_part *part = &plan->part[member->local];
        const struct description *d = part->description;
        struct charges_amount cost = holding_cost(backend, d->arena_bytes, plan_own_bytes(plan, d));

        cost.bytes += d->control_bytes;
        cost.fds = memories_of(backend, d);
        int r = holding_new(plan->job, member, plan->ordinal, backend, &cost, plan_late, &part->arena,
                            refusal);

        if (r != 0)
                return r;
        part->ready = calloc(d->n_buckets, sizeof(uint64_t));
        if (part->ready == NULL)
                return -ENOMEM;
        return has_places(plan, d) ? plan_find_places(plan, member, refusal) : 0;
}

int plan_provide(struct plan *plan, struct member *member, struct refusal *refusal) {
        struct plan_part *part = &plan->part[member->local];
        uint64_t control = part->description->control_bytes;
        int r = provide_part(plan, member, refusal);

        if (r == 0)
                r = holding_refuse_room(plan->job, control, plan_control_new(part, control), refusal);
        return r;
}

void plan_record_members(struct job *job) {
        if (job->record == NULL)
                return;
        job->record->world = job->world < LIMIT_LOCAL ? job->world : LIMIT_LOCAL;
        memset(job->record->pid, 0, sizeof(job->record->pid));
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->rank < LIMIT_LOCAL)
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

/* Its steps have a track of their own. One that some members have freed already still counts, and so does one
 * that has failed after the node has said that it has it. */
static int reserve_track(const struct plan *plan, struct refusal *refusal) {
        uint32_t agreed = 0, said = machine_plans(plan->job, plan->ordinal), n;
        struct plan *other;

        list_for_each(other, &plan->job->plans, link)
                agreed += other->agreed && other != plan;
        n = agreed > said ? agreed : said; /* while members are awaited, the node says nothing of plans */
        if (n >= LIMIT_PLANS)
                return refuse(
                        refusal, WIRE__CODE__QUOTA,
                        "job '%s' has %u plans that not all of its members have freed; no more are possible",
                        plan->job->name, LIMIT_PLANS);
        return machine_reserve(plan->job, 0, TRACK_STEP + n + 1, refusal);
}

/* A plan that comes back has a slot: check_former() has seen to that. */
static void plan_keep(struct plan *plan, const struct journal_key *key, uint32_t most) {
        struct journal *journal = plan->job->table->journal;

        if (plan->job->takeover != NULL) {
                plan->kept = journal_find(journal, key);
                if (plan->kept != NULL)
                        journal_take(journal, plan->kept);
        } else if (!plan->job->lost_with_daemon) {
                plan->kept = journal_add(journal, key, most);
                if (plan->kept == NULL && plan->job->kept != NULL)
                        position_give_up(plan->job);
        }
}

int plan_prepare(struct plan *plan, struct refusal *refusal) {
        const struct jobs_config *config = &plan->job->table->config;
        const struct journal_key key = plan_key(plan, plan->reference);
        uint32_t most = plan->job->max_world;
        uint64_t bytes = buckets_bytes(plan->reference, config->backend, most);
        int r = reserve_track(plan, refusal);

        if (r != 0 || plan->bucket != NULL)
                return r; /* it has buckets from a generation before, in which no track has come */
        r = prepare_record(plan->job, refusal);
        if (r != 0)
                return r;
        if (plan->job->table->journal != NULL)
                bytes += journal_bytes(&key, most);
        r = charge_take(&plan->charge, config->accounts, plan->job->uid, ACCOUNT_OWN, bytes, refusal);
        if (r != 0)
                return r;
        plan->bucket = buckets_new(plan->reference, config->backend, most);
        r = plan->bucket != NULL ? tasks_take(&plan->job->table->tasks, &plan->owner, plan->job->uid,
                                              plan->job->id, step_done)
                                 : -ENOMEM;
        if (r < 0) {
                free(plan->bucket);
                plan->bucket = NULL;
                charge_release(&plan->charge); /* the next generation may try again */
                return r;
        }
        plan_keep(plan, &key, most);
        return 0;
}

int plan_provide_again(struct plan *plan, struct member *member, int *fds, unsigned n_fds,
                       struct refusal *refusal) {
        unsigned needed =
                memories_of(plan->job->table->config.backend, plan->part[member->local].description);
        struct plan_part *part = &plan->part[member->local];
        uint64_t control = part->description->control_bytes;

        if (n_fds != needed)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "plan %u of job '%s', rank %u: %u file descriptors came for %u memories",
                              plan->ordinal, plan->job->name, member->rank, n_fds, needed);
        int r = provide_part(plan, member, refusal);
        if (r != 0)
                return r;
        r = plan_control_adopt(part, &fds[n_fds - 1], control, refusal);
        return r > 0 ? plan_refuse_memory(plan, member, refusal) : r;
}

int plan_refuse_memory(const struct plan *plan, const struct member *member, struct refusal *refusal) {
        struct refusal why = *refusal;

        return refuse(refusal, why.code, "plan %u of job '%s', rank %u: %s", plan->ordinal, plan->job->name,
                      member->rank, why.text);
}
