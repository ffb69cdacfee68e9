/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of jobs, one job at a time. No process is looked at, and places without a process cost
 * nothing. */
#include <string.h>

#include "base/clock.h"
#include "job/view.h"
#include "report/private.h"

#define RANKS 32u /* shown in one go */

uint32_t reports_newest_job(const struct reports *reports) {
        return reports->config.jobs->next_job;
}

/* Whether a later job has the same name and uid; only a job that has ended gives its name away. */
static bool measure_is_superseded(const struct reports *reports, const struct job *job) {
        const struct job *other;

        if (job->state != JOB_LOST)
                return false;
        list_for_each(other, &reports->config.jobs->list, link)
                if (other->id > job->id && other->uid == job->uid && strcmp(other->name, job->name) == 0)
                        return true;
        return false;
}

static struct job *measure_find(const struct reports *reports, const struct reports_measure *measure) {
        struct job *job;

        list_for_each(job, &reports->config.jobs->list, link)
                if (job->id > measure->after && job->id <= measure->until &&
                    (measure->all || !measure_is_superseded(reports, job)))
                        return job;
        return NULL;
}

static void measure_count(const struct job *job, struct metrics_job *ret) {
        const struct member *member;

        ret->n_members = job->n_local;
        list_for_each(member, &job->members, link) {
                ret->n_members += member->state == MEMBER_JOINING && !member_waits(member);
                ret->n_spares += member->state == MEMBER_JOINING && member_waits(member);
        }
}

static bool measure_rank(const struct member *member, enum metrics_need what, struct metrics_rank *ret) {
        ret->rank = member->rank;
        if (member->pid == 0 || (what == METRICS_LATE && member->job->record == NULL))
                return false;
        if (what == METRICS_EXPOSED)
                return view_exposed(member, &ret->us) >= 0;
        ret->us = job_facts_late(member);
        return true;
}

/* From a rank on, whichever place it has by now: none is shown twice. */
static void measure_ranks(const struct job *job, struct reports_measure *measure, struct metrics_rank *ranks,
                          struct metrics_job *ret) {
        uint32_t local = 0, first = measure->job == job->id ? measure->rank : 0;

        while (local < job->n_local && job->local[local]->rank < first)
                local++;
        for (; local < job->n_local && ret->n_ranks < RANKS; local++)
                ret->n_ranks += measure_rank(job->local[local], measure->what, &ranks[ret->n_ranks]);
        ret->rank = ranks;
        measure->job = job->id;
        measure->rank = local < job->n_local ? job->local[local]->rank : 0;
}

uint32_t reports_measure(struct reports *reports, struct reports_measure *measure,
                         void (*fn)(void *data, const struct metrics_job *job), void *data) {
        struct job *job = measure_find(reports, measure);
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct metrics_job measured = { .job = &row };
        struct metrics_rank ranks[RANKS];

        if (job == NULL)
                return 0;
        job_facts_add(&row, job, clock_now());
        measure_count(job, &measured);
        if (measure->what == METRICS_STATE)
                row.state = (char *)view_state(job, clock_now());
        if (measure->what == METRICS_LATE || measure->what == METRICS_EXPOSED)
                measure_ranks(job, measure, ranks, &measured);
        fn(data, &measured);
        return job->id;
}
