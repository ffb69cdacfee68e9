/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a job waits for: to join it, to come back, for an operation, or for what its plans need. */
#include "job/watch/waits.h"

#include "job/data.h"
#include "job/plan/plan.h"
#include "job/restart/takeover.h"

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

/* The ranks that nobody has, of so many. */
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
