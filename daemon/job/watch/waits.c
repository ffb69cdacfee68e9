/* SPDX-License-Identifier: Apache-2.0 */
/* Which members keep a job waiting, and for how long members were blocked: what people are shown. */
#include "job/watch/waits.h"

#include "job/data.h"
#include "job/plan/plan.h"
#include "job/plan/plan_control.h"
#include "job/plan/step.h"
#include "job/restart/takeover.h"

static struct job_wait wait_for(struct member *member, enum wait_kind kind, uint64_t since) {
        return (struct job_wait){ .kind = kind,
                                  .member = member,
                                  .rank = member->rank,
                                  .pid = member->pid,
                                  .process_state = "",
                                  .parameter = "",
                                  .since = since };
}

static unsigned agreement_waits(struct plan *plan, struct job_wait *waits, unsigned max) {
        uint64_t since = UINT64_MAX;
        unsigned n = 0;

        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].request != 0 && plan->part[local].state == PART_MAPPED &&
                    plan->part[local].mapped < since)
                        since = plan->part[local].mapped;
        if (since == UINT64_MAX)
                return 0;
        for (uint32_t local = 0; local < plan->job->n_local && n < max; local++)
                if (part_is_awaited(&plan->part[local])) {
                        waits[n] = wait_for(plan->job->local[local], WAIT_PLAN, since);
                        waits[n++].plan = plan->ordinal;
                }
        return n;
}

/*
 * The first parameter of the bucket that the member's library has not marked ready; "" if that is not known.
 * The marks of a member that has not come to this step yet are those of the step before.
 */
static const char *missing_parameter(const struct plan *plan, uint32_t local, uint32_t index,
                                     struct looks *looks) {
        const struct description_bucket *bucket = &plan->reference->bucket[index];
        union {
                struct diagnosis page;
                uint8_t space[DIAGNOSIS_MOST];
        } read;

        if (looks->marks == 0 || !plan_control_read(plan, local, &read.page,
                                                    DIAGNOSIS_BITMAP + (plan->reference->n_params + 7) / 8))
                return "";
        for (uint32_t i = 0; i < bucket->n && looks->marks > 0; i++, looks->marks--) {
                uint32_t param = plan->reference->order[bucket->first + i];

                if (read.page.step != plan->step + 1 || !diagnosis_marked(&read.page, param))
                        return plan->reference->param[param].name;
        }
        return "";
}

/* The first bucket that some members are ready in and others are not. */
static unsigned step_waits(struct plan *plan, struct job_wait *waits, unsigned max) {
        uint32_t n_local = plan->job->n_local;
        uint32_t index = 0;
        unsigned n = 0;

        while (index < plan->reference->n_buckets &&
               (plan->bucket[index].n_ready == 0 || plan->bucket[index].n_ready == n_local))
                index++;
        if (index == plan->reference->n_buckets)
                return 0;
        for (uint32_t local = 0; local < n_local && n < max; local++) {
                struct plan_part *part = &plan->part[local];

                if (part->state == PART_DROPPED ||
                    (part->state == PART_MAPPED && part->ready[index] == plan->step + 1))
                        continue;
                waits[n] = wait_for(plan->job->local[local], WAIT_STEP, plan->bucket[index].since);
                waits[n].plan = plan->ordinal;
                waits[n].bucket = index;
                waits[n++].step = plan->step + 1;
        }
        return n;
}

const char *plan_wait_parameter(const struct job_wait *wait, struct looks *looks) {
        struct plan *plan = wait->kind == WAIT_STEP ? plan_find(wait->member->job, wait->plan) : NULL;

        if (plan == NULL || plan->part[wait->member->local].state != PART_MAPPED)
                return "";
        return missing_parameter(plan, wait->member->local, wait->bucket, looks);
}

unsigned plan_waits(struct plan *plan, struct job_wait *waits, unsigned max) {
        if (!plan->agreed)
                return agreement_waits(plan, waits, max);
        return plan_is_open(plan) && step_gate(plan) == GATE_OPEN ? step_waits(plan, waits, max) : 0;
}

unsigned operation_waits(struct job *job, struct job_wait *waits, unsigned max) {
        unsigned n = 0;

        if (job->operation.n_calls == 0 || job->operation.owner.tasks > 0 || job->paused_at != 0 ||
            job->table->gate == GATE_HELD)
                return 0;
        for (uint32_t local = 0; local < job->n_local && n < max; local++)
                if (!job->local[local]->operation.pending)
                        waits[n++] = wait_for(job->local[local], WAIT_OPERATION, job->operation.since);
        return n;
}

/* A wait for each rank below `world` that no member has. */
static unsigned join_waits(const struct job *job, uint32_t world, uint64_t since, struct job_wait *waits,
                           unsigned max) {
        unsigned n = 0;

        for (uint32_t rank = 0; rank < world && n < max; rank++)
                if (takeover_is_vacant(job, rank))
                        waits[n++] = (struct job_wait){ .kind = WAIT_JOIN,
                                                        .rank = rank,
                                                        .process_state = "",
                                                        .parameter = "",
                                                        .since = since };
        return n;
}

unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max) {
        struct plan *plan;
        unsigned n = 0;

        if (job->state == JOB_FORMING && !list_empty(&job->members))
                return join_waits(job, job->max_world,
                                  list_entry(job->members.next, struct member, link)->joined, waits, max);
        if (job->state == JOB_REPLACING)
                return join_waits(job, job->world, job->interrupted, waits, max);
        if (job->state != JOB_RUNNING)
                return 0;
        list_for_each(plan, &job->plans, link)
                n += plan_waits(plan, waits + n, max - n);
        return n + operation_waits(job, waits + n, max - n);
}

bool plan_read_times(const struct plan *plan, uint32_t local, uint64_t times[2]) {
        struct diagnosis page;

        if (!plan->agreed || plan->part[local].state != PART_MAPPED ||
            !plan_control_read(plan, local, &page, sizeof(page)))
                return false;
        times[0] = page.exposed_ns;
        times[1] = page.elapsed_ns;
        return times[1] > 0 && times[0] <= times[1];
}
