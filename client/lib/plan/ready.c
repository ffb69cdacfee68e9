/* SPDX-License-Identifier: Apache-2.0 */
/* Sends READY for each bucket whose parameters are all marked. */
#include "client/lib/plan/ready.h"

#include <string.h>

#include "client/lib/plan/plan.h"
#include "client/lib/plan/standalone.h"

void ready_append(struct gradsync_plan *plan) {
        struct ready *ready = &plan->ready;

        while (ready->queued < plan->layout.n_buckets && plan->step.missing[ready->queued] == 0)
                ready->queued++;
}

/* Bit k: the bucket's k-th parameter is absent. */
static size_t ready_map_absent(struct gradsync_plan *plan, const struct layout_bucket *bucket) {
        size_t bytes = (bucket->n + 7) / 8;

        memset(plan->ready.absent_map, 0, bytes);
        for (uint32_t k = 0; k < bucket->n; k++)
                if (plan->step.mark[plan->layout.order[bucket->first + k]] == MARK_ABSENT)
                        plan->ready.absent_map[k / 8] |= (uint8_t)(1u << k % 8);
        return bytes;
}

static int ready_send_bucket(struct gradsync_plan *plan, uint32_t b) {
        const struct gradsync_job *job = plan->job;
        Wire__Ready ready = WIRE__READY__INIT;

        SET_PLAN(ready, plan);
        SET(ready, generation, job->standing.generation);
        SET(ready, step, plan->step.number);
        SET(ready, bucket, b);
        if (plan->step.absent[b] > 0) {
                ready.has_absent = true;
                ready.absent.len = ready_map_absent(plan, &plan->layout.bucket[b]);
                ready.absent.data = plan->ready.absent_map;
        }
        SET_IF(ready, divisor, plan->step.divisor > 0, plan->step.divisor);
        return link_send(&job->gs->link, WIRE__MESSAGE_TYPE__READY, 0, &ready.base, -1);
}

static int ready_reduce_alone(struct gradsync_plan *plan, uint32_t b) {
        standalone_reduce(plan, b);
        plan->step.done[b] = 1;
        if (b + 1 == plan->layout.n_buckets)
                plan->step.outcome = WIRE__OUTCOME__COMMITTED;
        link_notify(&plan->job->gs->link);
        return GRADSYNC_OK;
}

int ready_send(struct gradsync_plan *plan) {
        struct ready *ready = &plan->ready;

        /* All buckets are sent when the job goes on. */
        if (plan->job->rejoin.phase != REJOIN_NONE)
                return GRADSYNC_OK;
        while (ready->sent < ready->queued && plan->step.outcome == WIRE__OUTCOME__OPEN) {
                int r = plan->job->gs->standalone ? ready_reduce_alone(plan, ready->sent)
                                                  : ready_send_bucket(plan, ready->sent);

                if (r != GRADSYNC_OK)
                        return r == GRADSYNC_AGAIN ? GRADSYNC_OK : r;
                ready->sent++;
        }
        return GRADSYNC_OK;
}
