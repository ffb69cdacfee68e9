/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one generation of a job to the next. A loss ends the generation; then comes NEWGEN, with a successor in the lost
 * member's place or without it, or LOST, and the job is over. Whoever is in a step or a collective meanwhile waits for
 * that, so that the rank and the world size that he then reads are those in which he tries again.
 */
#include <stdio.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/job/job.h"
#include "client/lib/plan/plan.h"

void job_interrupt(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text) {
        if (job->gs->minor < FRAME_MINOR_1) {   /* to such a daemon each loss is the end */
                job_note_loss(job, rank, pid, text);
                return;
        }
        if (job->lost.known)
                return;
        loss_set(&job->change, rank, pid, text);
        job->changing = true;
}

/* What other threads read without the lock. */
static void standing_store(uint32_t *field, uint32_t value) {
        __atomic_store_n(field, value, __ATOMIC_RELAXED);
}

int generation_renew(struct gradsync_job *job, const Wire__Newgen *message) {
        if (message->generation <= job->generation || message->world < 1 || message->world > job->most ||
            message->rank >= message->world)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd granted rank %u of %u in generation %u after rank %u of %u "
                            "in generation %u", job->name, message->rank, message->world, message->generation, job->rank,
                            job->world, job->generation);
        standing_store(&job->generation, message->generation);
        standing_store(&job->rank, message->rank);
        standing_store(&job->local_rank, message->local_rank);
        standing_store(&job->world, message->world);
        job->newcomer = message->behind;
        job->behind |= message->behind;  /* until the state has been synchronised */
        job->changing = job->resumed = false;
        if (job->rejoin.phase != REJOIN_NONE)
                rejoin_end(job, message->operations, message->operation_failed);
        job->operation_failed = false;
        job->sequence = 0;
        loss_set(&job->change, message->lost_rank, message->lost_pid, message->text);
        for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                step_regenerate(plan);
        return GRADSYNC_OK;
}

static void generation_follow(uint32_t *generation, const struct gradsync_job *job, uint32_t next) {
        if (*generation == job->generation)
                *generation = next;
}

/* What was begun in the generation before is as good in the new one. */
int generation_resume(struct gradsync_job *job, const Wire__Resumed *message) {
        if (job->rejoin.phase != REJOIN_TOLD || message->generation <= job->generation)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd resumes it in generation %u, after %u", job->name,
                            message->generation, job->generation);
        generation_follow(&job->told, job, message->generation);
        generation_follow(&job->collective.generation, job, message->generation);
        generation_follow(&job->sync.generation, job, message->generation);
        standing_store(&job->generation, message->generation);
        job->resumed = true;
        rejoin_end(job, message->operations, message->operation_failed);
        for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                step_resume(plan);
        return GRADSYNC_OK;
}

int job_wait_generation(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        while (job->changing && r == GRADSYNC_OK)
                r = job->gs->link.failed != 0 ? link_failure(&job->gs->link) : context_wait(job->gs, NEVER);
        return r;
}

int job_void_code(const struct gradsync_job *job) {
        return job->behind && !job->lost.known ? GRADSYNC_VOID_BEHIND : GRADSYNC_VOID_RETRY;
}
