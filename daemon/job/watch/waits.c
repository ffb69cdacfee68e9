/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the members and nodes that a job waits for, and how long members were blocked: facts for people. */
#include "job/watch/waits.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/proc.h"
#include "job/data.h"
#include "job/plan/plan.h"
#include "job/plan/plan_control.h"
#include "job/plan/step.h"
#include "job/restart/takeover.h"

#define WANT_KEPT (5 * USEC_PER_SEC) /* if it is not said again */

static struct job_wait wait_for(struct member *member, enum wait_kind kind, uint64_t since) {
        return (struct job_wait){ .kind = kind,
                                  .member = member,
                                  .rank = member->rank,
                                  .pid = member->pid,
                                  .process_state = "",
                                  .parameter = "",
                                  .host = "",
                                  .text = "",
                                  .since = since };
}

static struct job_wait nodes_wait(enum wait_kind purpose, uint64_t since) {
        return (struct job_wait){ .kind = WAIT_NODES,
                                  .purpose = purpose,
                                  .rank = UINT32_MAX,
                                  .process_state = "",
                                  .parameter = "",
                                  .host = "",
                                  .text = "",
                                  .since = since };
}

void wait_take_purpose(struct job_wait *wait, const struct job_wait *nodes) {
        wait->purpose = nodes->purpose;
        wait->plan = nodes->plan;
        wait->step = nodes->step;
        wait->since = nodes->since;
}

static bool waits_all_mapped(const struct plan *plan) {
        for (uint32_t local = 0; local < plan->job->n_local; local++)
                if (plan->part[local].state != PART_MAPPED)
                        return false;
        return true;
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
        if (n > 0 || max == 0 || machine_is_alone(plan->job) || !waits_all_mapped(plan))
                return n;
        waits[n] = nodes_wait(WAIT_PLAN, since);
        waits[n++].plan = plan->ordinal;
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
                        return description_param(plan->reference, param)->name;
        }
        return "";
}

/* Whether the engine has some of the bucket, and the backend none. */
static bool is_exchanging(const struct plan *plan, uint32_t index) {
        return plan->bucket[index].state == BUCKET_EXCHANGING ||
               (plan->bucket[index].state == BUCKET_FANNING_OUT && plan->owner.tasks == 0);
}

/* The first bucket that is with the engine, or the vote: the members here have given all that it takes. */
static unsigned exchange_waits(const struct plan *plan, struct job_wait *wait) {
        uint32_t n = plan->reference->n_buckets, index = 0;
        uint64_t last = 0;

        for (; index < n && plan->bucket[index].state == BUCKET_DONE; index++)
                if (plan->bucket[index].since > last)
                        last = plan->bucket[index].since;
        if (machine_is_alone(plan->job) || (index < n && !is_exchanging(plan, index)))
                return 0;
        *wait = nodes_wait(WAIT_STEP, index < n ? plan->bucket[index].since : last);
        wait->plan = plan->ordinal;
        wait->bucket = index < n ? index : UINT32_MAX;
        wait->step = plan->step + 1;
        return 1;
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
                return max > 0 ? exchange_waits(plan, waits) : 0;
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
        if (job->operation.n_calls == job->n_local && max > 0 && !machine_is_alone(job)) {
                waits[n] = nodes_wait(WAIT_OPERATION, job->operation.since);
                waits[n++].sequence = job->operation.first.sequence;
        }
        return n;
}

unsigned helper_waits(const struct job *job, struct job_wait *waits, unsigned max) {
        struct engine *engine;
        uint64_t since;
        pid_t pid = 0;

        for (uint32_t part = 0; pid == 0 && (engine = machine_engine(job->table, part)) != NULL; part++)
                if (engine->ops->silent != NULL && job->comm.id != 0 && max > 0)
                        pid = engine->ops->silent(engine, job->comm.id + part, &since);
        if (pid == 0)
                return 0;
        waits[0] = (struct job_wait){ .kind = WAIT_HELPER,
                                      .rank = UINT32_MAX,
                                      .pid = pid,
                                      .bucket = UINT32_MAX,
                                      .process_state = proc_state(pid),
                                      .parameter = "",
                                      .host = "",
                                      .text = "",
                                      .since = since };
        return 1;
}

unsigned memory_waits(struct job *job, struct job_wait *waits, unsigned max) {
        const struct holding *holding;
        unsigned n = 0;

        list_for_each(holding, &job->table->holdings.list, link) {
                const struct member *member =
                        holding->holder.job == job->id && holding_is_busy(holding) && !holding->unwanted
                                ? holder_find(job, &holding->holder)
                                : NULL;

                if (member == NULL || n == max)
                        continue;
                waits[n++] = (struct job_wait){ .kind = WAIT_MEMORY,
                                                .rank = member->rank,
                                                .pid = member->pid,
                                                .process_state = "",
                                                .parameter = "",
                                                .host = "",
                                                .text = "",
                                                .since = holding->since };
        }
        return n;
}

/* The bucket in which this node has nothing to give: that one, or, if all members here have given it, the
 * first that one of them has not. */
static uint32_t wanted_bucket(const struct plan *plan, uint32_t wanted) {
        uint32_t n = plan->reference->n_buckets;

        if (wanted < n && plan->bucket[wanted].n_ready < plan->job->n_local)
                return wanted;
        for (uint32_t index = 0; index < n; index++)
                if (plan->bucket[index].n_ready < plan->job->n_local)
                        return index;
        return n;
}

static unsigned wanted_in_step(struct plan *plan, const struct want *want, struct job_wait *waits,
                               unsigned max) {
        struct job_wait known[1];
        uint32_t index = wanted_bucket(plan, want->bucket);
        unsigned n = 0;

        if (want->step != plan->step + 1 || index == plan->reference->n_buckets ||
            step_gate(plan) != GATE_OPEN || plan_waits(plan, known, 1) > 0)
                return 0;
        for (uint32_t local = 0; local < plan->job->n_local && n < max; local++) {
                const struct plan_part *part = &plan->part[local];

                if (part->state == PART_DROPPED ||
                    (part->state == PART_MAPPED && part->ready[index] == plan->step + 1))
                        continue;
                waits[n] = wait_for(plan->job->local[local], WAIT_STEP, want->since);
                waits[n].plan = plan->ordinal;
                waits[n].bucket = index;
                waits[n++].step = plan->step + 1;
        }
        return n;
}

static unsigned wanted_in_plan(struct job *job, const struct plan *plan, const struct want *want,
                               struct job_wait *waits, unsigned max) {
        unsigned n = 0;

        for (uint32_t local = 0; local < job->n_local && n < max; local++) {
                const struct plan_part *part = plan != NULL ? &plan->part[local] : NULL;

                if (part != NULL && !part_is_awaited(part))
                        continue;
                if (part == NULL && job->local[local]->next_plan > want->plan)
                        continue; /* it has dropped it */
                waits[n] = wait_for(job->local[local], WAIT_PLAN, want->since);
                waits[n++].plan = want->plan;
        }
        return n;
}

static unsigned wanted_in_operation(const struct job *job, const struct want *want, struct job_wait *waits,
                                    unsigned max) {
        unsigned n = 0;

        if (job->operation.n_calls > 0 || job->paused_at != 0 || job->table->gate == GATE_HELD)
                return 0; /* operation_waits() has found the missing members */
        for (uint32_t local = 0; local < job->n_local && n < max; local++)
                if (job->local[local]->operation.next <= want->step)
                        waits[n++] = wait_for(job->local[local], WAIT_OPERATION, want->since);
        return n;
}

unsigned wanted_waits(struct job *job, const struct want *want, struct job_wait *waits, unsigned max) {
        struct plan *plan = plan_find(job, want->plan);

        if (want->generation != job->generation || clock_now() - want->heard >= WANT_KEPT)
                return 0;
        switch (want->what) {
        case WAIT_STEP: return plan != NULL && plan->agreed ? wanted_in_step(plan, want, waits, max) : 0;
        case WAIT_PLAN:
                return plan == NULL || !plan->agreed ? wanted_in_plan(job, plan, want, waits, max) : 0;
        case WAIT_OPERATION: return wanted_in_operation(job, want, waits, max);
        default: return 0;
        }
}

static bool want_is_of(const struct want *want, const struct want *other) {
        return want->what == other->what && want->plan == other->plan && want->step == other->step;
}

bool job_want(struct job *job, const struct want *want) {
        unsigned i = 0;
        bool known, told;

        while (i < JOB_WANTS - 1 && !want_is_of(&job->want[i], want))
                i++;
        known = want_is_of(&job->want[i], want) && job->want[i].generation == job->generation;
        told = want_is_of(&job->want[i], want) && job->want[i].told;
        for (; i > 0; i--)
                job->want[i] = job->want[i - 1];
        job->want[0] = *want;
        job->want[0].generation = job->generation;
        job->want[0].heard = clock_now();
        job->want[0].told = told;
        return !known;
}

/* Lists the other nodes of the generation. */
static void list_nodes(const struct job *job, char *text, size_t size) {
        const struct node *node = &job->machine.node;
        size_t used = 0;

        for (uint32_t other = 0; other < node->config.room.nodes && used + 24 < size; other++)
                if (nodeset_has(node->set, other) && other != node->config.address)
                        used += (size_t)snprintf(text + used, size - used, "%s%u", used > 0 ? ", " : "",
                                                 other);
        if (used + 24 >= size)
                snprintf(text + used, size - used, " and others");
}

void wait_text(const struct job *job, const struct job_wait *wait, char text[WAIT_TEXT]) {
        char nodes[WAIT_TEXT / 2] = "";

        text[0] = '\0';
        if (wait->kind == WAIT_MEMORY)
                snprintf(text, WAIT_TEXT, "gradsyncd to get ready the memory of rank %u (pid %d)", wait->rank,
                         (int)wait->pid);
        if (wait->text[0] != '\0')
                snprintf(text, WAIT_TEXT, "%s", wait->text);
        else if (wait->kind == WAIT_HELPER)
                snprintf(text, WAIT_TEXT,
                         "the helper process %d%s%.64s (%s), which does not answer its daemon",
                         (int)wait->pid, wait->host[0] != '\0' ? " on host " : "", wait->host,
                         wait->process_state);
        if (wait->kind != WAIT_NODES)
                return;
        list_nodes(job, nodes, sizeof(nodes));
        if (wait->purpose == WAIT_PLAN)
                snprintf(text, WAIT_TEXT, "plan %u to be agreed on with nodes %s", wait->plan, nodes);
        else if (wait->purpose == WAIT_OPERATION)
                snprintf(text, WAIT_TEXT, "an operation with nodes %s", nodes);
        else if (wait->bucket != UINT32_MAX)
                snprintf(text, WAIT_TEXT, "the exchange of bucket %u with nodes %s", wait->bucket, nodes);
        else
                snprintf(text, WAIT_TEXT, "the vote of nodes %s", nodes);
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
                                                        .host = "",
                                                        .text = "",
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
                n = join_waits(job, job->world, job->interrupted, waits, max);
        else if (job->state != JOB_RUNNING)
                return 0;
        list_for_each(plan, &job->plans, link)
                if (job->state == JOB_RUNNING)
                        n += plan_waits(plan, waits + n, max - n);
        if (job->state == JOB_RUNNING)
                n += operation_waits(job, waits + n, max - n);
        for (unsigned i = 0; i < JOB_WANTS && job->state == JOB_RUNNING; i++)
                n += wanted_waits(job, &job->want[i], waits + n, max - n);
        if (job->state == JOB_RUNNING)
                n += helper_waits(job, waits + n, max - n);
        return n + memory_waits(job, waits + n, max - n);
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
