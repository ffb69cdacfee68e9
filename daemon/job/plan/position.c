/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/position.h"

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "job/data.h"
#include "job/plan/plan.h"

static struct journal_track position_of_track(const struct job *job, uint32_t track) {
        const struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->agreed && plan->track == track)
                        return (struct journal_track){ plan->ordinal, track,
                                                       machine_before(job, plan->ordinal) };
        return (struct journal_track){ JOURNAL_NO_PLAN, track, machine_committed(job, track) };
}

void position_claim(struct job *job) {
        struct log_context context = LOG_CONTEXT_OF(job);

        if (!job->cluster || job->kept != NULL || job->table->journal == NULL)
                return;
        job->kept = journal_add_job(job->table->journal, job->uid, job->name, job->incarnation);
        if (job->kept == NULL && flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_WARNING, &context,
                          "job '%s': the journal is full; a restart of this gradsyncd would end the job",
                          job->name);
}

void position_keep(const struct job *job) {
        const struct node *node = &job->machine.node;
        struct journal_place place = { .generation = node->generation, .world = job->world };

        if (job->generation != node->generation.number) { /* members do not know that one yet */
                const struct journal_place *now = journal_place_of(job->kept, job->generation);

                if (now == NULL)
                        return;
                place.generation = now->generation;
        }
        if (job->kept == NULL)
                return;
        for (uint32_t local = 0; local < job->n_local; local++)
                place.rank[place.n_ranks++] = job->local[local]->rank;
        for (uint32_t track = TRACK_STEP; track < node->n_tracks; track++)
                place.track[place.n_tracks++] = position_of_track(job, track);
        journal_place_job(job->kept, &place);
}
