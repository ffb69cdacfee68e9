/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one generation of a job to the next. A loss ends the generation; then comes NEWGEN, with a successor in the lost
 * member's place or without it, or LOST, and the job is over. Whoever is in a step or a collective meanwhile waits for
 * that, so that the rank and the world size that he then reads are those in which he tries again.
 */
#include <stdio.h>

#include "client/lib/clock.h"
#include "client/lib/fail.h"
#include "client/lib/job.h"
#include "client/lib/plan.h"

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

int job_regenerate(struct gradsync_job *job, const Wire__Newgen *message) {
        if (message->generation <= job->generation || message->world < 1 || message->world > job->most ||
            message->rank >= message->world)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd granted rank %u of %u in generation %u after rank %u of %u "
                            "in generation %u", job->name, message->rank, message->world, message->generation, job->rank,
                            job->world, job->generation);
        job->generation = message->generation;
        job->rank = message->rank;
        job->local_rank = message->local_rank;
        job->world = message->world;
        job->behind = message->behind;
        job->changing = false;
        job->sequence = 0;
        loss_set(&job->change, message->lost_rank, message->lost_pid, message->text);
        for (struct gradsync_plan *plan = job->plans; plan != NULL; plan = plan->next)
                step_regenerate(plan);
        return GRADSYNC_OK;
}

int job_wait_generation(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        while (job->changing && r == GRADSYNC_OK)
                r = context_wait(job->gs, NEVER);
        return r;
}

int job_void_code(const struct gradsync_job *job) {
        return job->behind && !job->lost.known ? GRADSYNC_VOID_BEHIND : GRADSYNC_VOID_RETRY;
}
