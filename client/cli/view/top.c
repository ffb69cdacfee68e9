// SPDX-License-Identifier: Apache-2.0
/* The page of `top`: see top.h. */
#include <inttypes.h>
#include <string.h>

#include "client/cli/base/format.h"
#include "client/cli/view/table.h"
#include "client/cli/view/top.h"

static const struct column columns[] = {
        { "JOB", false }, { "MEMBER", true },  { "PID", true },  { "STATE", false },      { "STEP", true },
        { "RATE", true }, { "EXPOSED", true }, { "LATE", true }, { "WAITED FOR", false },
};

/* The same in the look before this one (NULL: there is none): what is shown is of the interval between the
 * two, or since the start at the first look. */
static const struct snapshot_job *top_job_before(const struct observation *past, const struct snapshot *from,
                                                 const struct snapshot_job *job) {
        for (size_t i = 0; past && i < past->n; i++) {
                const struct snapshot *before = &past->snapshot[i];
                if (before->daemon->instance != from->daemon->instance)
                        continue;
                for (size_t k = 0; k < before->n_jobs; k++)
                        if (before->job[k].job->job == job->job->job)
                                return &before->job[k];
        }
        return NULL;
}

static const Wire__StatusMember *top_member_before(const struct snapshot_job *job,
                                                   const Wire__StatusMember *member) {
        for (size_t i = 0; job && i < job->n_members; i++)
                if (job->member[i]->member == member->member)
                        return job->member[i];
        return NULL;
}

/* How much a counter has grown; one that began anew has not. */
static uint64_t top_growth(uint64_t now, uint64_t before) {
        return now > before ? now - before : 0;
}

static uint64_t top_reductions(const Wire__StatusJob *job) {
        uint64_t sum = 0;

        for (size_t i = 0; i < job->n_reduce_class; i++)
                sum += job->reduce_class[i];
        return sum;
}

/* The daemon adds up lateness over all buckets; a member that is late in a step is late in each of its
 * buckets. */
static uint64_t top_late_us(const Wire__StatusJob *now, const Wire__StatusJob *before,
                            uint64_t over_all_buckets) {
        uint64_t buckets = top_growth(top_reductions(now), top_reductions(before));
        uint64_t steps = top_growth(now->committed, before->committed);

        return buckets > 0 ? (uint64_t)((double)over_all_buckets / (double)buckets * (double)steps) : 0;
}

static void top_rate_cell(struct libscols_line *line, size_t *cell, double per_second) {
        char text[FORMAT_SIZE];

        table_text(line, cell, per_second > 0 ? format_rate(text, per_second) : "", PAINT_NONE);
}

/* Part of the interval that a sum of microseconds grew by; "" where it is not known. */
static void top_share_cell(struct libscols_line *line, size_t *cell, bool known, uint64_t us,
                           double seconds) {
        char text[FORMAT_SIZE];
        double share = known && seconds > 0 ? (double)us / 1e6 / seconds : 0;

        table_text(line, cell, known ? format_share(text, share < 1 ? share : 1) : "", PAINT_NONE);
}

static const Wire__StatusWait *top_wait_for(const struct snapshot_job *job,
                                            const Wire__StatusMember *member) {
        for (size_t i = 0; i < job->n_waits; i++)
                if (job->wait[i]->has_pid && !member->unranked && job->wait[i]->rank == member->rank)
                        return job->wait[i];
        return NULL;
}

static void top_wait_cell(struct libscols_line *line, size_t *cell, const Wire__StatusWait *wait) {
        bool parameter = wait && wait->parameter && *wait->parameter;
        char since[FORMAT_SIZE];

        if (!wait)
                table_text(line, cell, "", PAINT_NONE);
        else if (snapshot_wait_is_step(wait))
                table_printf(line, cell, "%s, bucket %u%s%s", format_age(since, wait->since_ms), wait->bucket,
                             parameter ? ", " : "", parameter ? wait->parameter : "");
        else
                table_printf(line, cell, "%s, %s", format_age(since, wait->since_ms), wait->what);
}

static void top_member_line(struct libscols_table *table, const struct snapshot_job *job,
                            const struct snapshot_job *job_past, const Wire__StatusMember *m,
                            double seconds) {
        const Wire__StatusMember *before = top_member_before(job_past, m);
        struct libscols_line *line = table_line(table);
        size_t cell = 0;

        table_text(line, &cell, job->job->name, PAINT_NONE);
        if (m->unranked)
                table_text(line, &cell, "", PAINT_NONE);
        else
                table_printf(line, &cell, "%u", m->rank);
        table_printf(line, &cell, "%d", m->pid);
        table_text(line, &cell, m->state, paint_state(m->state));
        table_printf(line, &cell, "%" PRIu64, m->step);
        top_rate_cell(line, &cell,
                      before && seconds > 0 ? (double)top_growth(m->step, before->step) / seconds : 0);
        if (before)
                top_share_cell(line, &cell, m->has_exposed_us && before->has_exposed_us,
                               top_growth(m->exposed_us, before->exposed_us), seconds);
        else
                top_share_cell(line, &cell, m->has_exposed, (uint64_t)(m->exposed * 1e6), 1);
        top_share_cell(line, &cell, before && m->has_late_us && before->has_late_us,
                       before ? top_late_us(job->job, job_past->job, top_growth(m->late_us, before->late_us))
                              : 0,
                       seconds);
        top_wait_cell(line, &cell, top_wait_for(job, m));
}

static void top_job_line(struct libscols_table *table, const struct snapshot_job *job,
                         const struct snapshot_job *before, double seconds) {
        struct libscols_line *line = table_line(table);
        const Wire__StatusJob *j = job->job;
        uint64_t steps = before ? top_growth(j->committed, before->job->committed) : 0;
        char share[FORMAT_SIZE], since[FORMAT_SIZE];
        size_t cell = 0;

        table_text(line, &cell, j->name, PAINT_BOLD);
        table_printf(line, &cell, "%zu/%u", snapshot_places(job), j->world);
        table_text(line, &cell, "", PAINT_NONE);
        table_text(line, &cell, j->state, paint_state(j->state));
        table_printf(line, &cell, "%" PRIu64, j->step);
        top_rate_cell(line, &cell, before && seconds > 0 ? (double)steps / seconds : j->step_rate);
        table_text(line, &cell, j->has_exposed ? format_share(share, j->exposed) : "", PAINT_NONE);
        table_text(line, &cell, "", PAINT_NONE);
        if (job->n_waits)
                table_printf(line, &cell, "%s, %zu member%s", format_age(since, job->wait[0]->since_ms),
                             job->n_waits, format_plural(job->n_waits));
        else
                table_text(line, &cell, "", PAINT_NONE);
}

static void top_add_job(struct libscols_table *table, const struct snapshot_job *job,
                        const struct snapshot_job *before, double seconds) {
        top_job_line(table, job, before, seconds);
        for (size_t i = 0; i < job->n_members; i++)
                top_member_line(table, job, before, job->member[i], seconds);
}

static void top_summary(const struct observation *observation, FILE *to) {
        size_t jobs = 0, members = 0, waits = 0;

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_jobs; k++) {
                        jobs++;
                        members += observation->snapshot[i].job[k].n_members;
                        waits += observation->snapshot[i].job[k].n_waits;
                }
        fprintf(to, "%zu daemon%s, %zu job%s, %zu member%s, %zu waited for\n", observation->n,
                format_plural(observation->n), jobs, format_plural(jobs), members, format_plural(members),
                waits);
}

void top_page(const struct observation *observation, const struct observation *before, uint64_t elapsed_ms,
              bool color, FILE *to) {
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        top_summary(observation, to);
        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_jobs; k++) {
                        const struct snapshot_job *job = &observation->snapshot[i].job[k];
                        top_add_job(table, job, top_job_before(before, &observation->snapshot[i], job),
                                    (double)elapsed_ms / 1000);
                }
        table_print(table, "", to);
}
