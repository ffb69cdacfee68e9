/* SPDX-License-Identifier: Apache-2.0 */
/* Whom a job waits for: to join it, to come back, for an operation, or for what its plans need. */
#include "job/watch/waits.h"

#include "job/plan/plan.h"
#include "job/private.h"
#include "job/restart/takeover.h"

unsigned operation_waits(struct job *job, struct job_wait *waits, unsigned max) {
        unsigned n = 0;

        if (job->operation.n_calls == 0 || job->operation.tasks > 0 || job->paused_at != 0 ||
            job->table->gate == GATE_HELD)
                return 0;
        for (uint32_t local = 0; local < job->n_local && n < max; local++)
                if (!job->local[local]->operation.pending)
                        waits[n++] = wait_for(job->local[local], WAIT_OPERATION, job->operation.since);
        return n;
}

/* The ranks that nobody holds, as far as they are known: members that asked for none are taken to get the
 * lowest free ones. */
static unsigned join_waits(struct job *job, struct job_wait *waits, unsigned max) {
        const struct membership *m = machine_membership(&job->machine);
        bool taken[LIMIT_LOCAL] = { false };
        uint32_t unasked = 0;
        unsigned n = 0;

        if (list_empty(&job->members))
                return 0;
        for (uint32_t i = 0; i < m->n; i++)
                if (m->member[i].request.has_rank)
                        taken[m->member[i].request.rank] = true;
                else
                        unasked++;
        unasked += m->n_waiting;
        for (uint32_t rank = 0; rank < m->max_world && n < max; rank++) {
                if (taken[rank])
                        continue;
                if (unasked > 0)
                        unasked--;
                else
                        waits[n++] = (struct job_wait){
                                .kind = WAIT_JOIN,
                                .rank = rank,
                                .process_state = "",
                                .parameter = "",
                                .since = list_entry(job->members.next, struct member, link)->joined
                        };
        }
        return n;
}

/* The places that are kept. */
static unsigned replace_waits(const struct job *job, struct job_wait *waits, unsigned max) {
        unsigned n = 0;

        for (uint32_t rank = 0; rank < job->world && n < max; rank++)
                if (takeover_is_vacant(job, rank))
                        waits[n++] = (struct job_wait){ .kind = WAIT_JOIN,
                                                        .rank = rank,
                                                        .process_state = "",
                                                        .parameter = "",
                                                        .since = job->interrupted };
        return n;
}

unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max) {
        struct plan *plan;
        unsigned n = 0;

        if (job->state == JOB_FORMING)
                return join_waits(job, waits, max);
        if (job->state == JOB_REPLACING)
                return replace_waits(job, waits, max);
        if (job->state != JOB_RUNNING)
                return 0;
        list_for_each(plan, &job->plans, link)
                n += plan_waits(plan, waits + n, max - n);
        return n + operation_waits(job, waits + n, max - n);
}
