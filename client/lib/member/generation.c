/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loss ends the generation. The daemon then sends NEWGEN, with a successor in the lost member's place or
 * without one, or LOST, and the job is over. A call that is in a step or a collective meanwhile waits for
 * that message, so that the rank and the world size that the trainer then reads are those of its next
 * attempt.
 */
#include "client/lib/member/generation.h"

#include "client/lib/base/fail.h"
#include "client/lib/member/member.h"
#include "client/lib/member/rejoin.h"

int generation_renew(struct gradsync_job *job, const Wire__Newgen *message) {
        struct standing *standing = &job->standing;

        if (message->generation <= standing->generation || message->world < 1 ||
            message->world > job->wish.max_world || message->rank >= message->world)
                return fail(GRADSYNC_PROTOCOL,
                            "job '%s': gradsyncd granted rank %u of %u in generation %u after rank %u of "
                            "%u in generation %u",
                            job->name, message->rank, message->world, message->generation, standing->rank,
                            standing->world, standing->generation);
        /* The job is over here, and about to be left. */
        if (!standing_set_state(standing, STANDING_SETTLED, message->lost_rank, message->lost_pid,
                                message->text))
                return GRADSYNC_OK;
        standing_enter(standing, message->generation, message->rank, message->local_rank, message->world);
        if (message->behind)
                standing->newcomer = message->generation;
        if (job->rejoin.phase != REJOIN_NONE)
                rejoin_end(job, message->operations, message->operation_failed);
        job->collective->sequence = 0;
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                step_regenerate(plan);
        if (job->plans->making != NULL)
                plan_regenerate(job->plans->making);
        return GRADSYNC_OK;
}

static void generation_follow(uint32_t *generation, const struct gradsync_job *job, uint32_t next) {
        if (*generation == job->standing.generation)
                *generation = next;
}

/* Steps and calls of the generation before go on in the new one, after a restart of this member's daemon or
 * of another one. */
int generation_resume(struct gradsync_job *job, const Wire__Resumed *message) {
        struct standing *standing = &job->standing;

        if ((job->rejoin.phase != REJOIN_TOLD && job->rejoin.phase != REJOIN_NONE) ||
            message->generation <= standing->generation)
                return fail(GRADSYNC_PROTOCOL, "job '%s': gradsyncd resumes it in generation %u, after %u",
                            job->name, message->generation, standing->generation);
        generation_follow(&standing->told, job, message->generation);
        generation_follow(&job->collective->generation, job, message->generation);
        generation_follow(&job->sync->generation, job, message->generation);
        if (job->plans->making != NULL)
                generation_follow(&job->plans->making->generation, job, message->generation);
        /* A call of this member was void, and nothing else. */
        if (standing->state == STANDING_CHANGING)
                standing_set_state(standing, STANDING_SETTLED, standing->loss.rank, standing->loss.pid,
                                   standing->loss.text);
        standing_enter(standing, message->generation, standing->rank, standing->local_rank, standing->world);
        rejoin_end(job, message->operations, message->operation_failed);
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                step_resume(plan);
        return GRADSYNC_OK;
}

/* gradsyncd says VOID for each step that it knows to be open before it says LOST. A step of which it has
 * seen no READY is void all the same once this member has marked a parameter in it. */
void generation_lose(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text) {
        standing_set_state(&job->standing, STANDING_OVER, rank, pid, text);
        rejoin_end(job, 0, false);
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                if (plan->step.touched)
                        step_void(plan, rank, pid, text);
}
