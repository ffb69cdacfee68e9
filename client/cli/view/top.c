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

static void top_rate_cell(struct libscols_line *line, size_t *cell, double per_second) {
        char text[FORMAT_SIZE];

        table_text(line, cell, per_second > 0 ? format_rate(text, per_second) : "", PAINT_NONE);
}

static void top_share_cell(struct libscols_line *line, size_t *cell, double share) {
        char text[FORMAT_SIZE];

        table_text(line, cell, share < 0 ? "" : format_share(text, share), PAINT_NONE);
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
                            const struct figures_member *row) {
        const Wire__StatusMember *m = row->member;
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
        top_rate_cell(line, &cell, row->is.rate);
        top_share_cell(line, &cell, row->is.exposed);
        top_share_cell(line, &cell, row->is.late);
        top_wait_cell(line, &cell, row->is.wait);
}

static void top_job_line(struct libscols_table *table, const struct figures_job *row) {
        const struct snapshot_job *job = row->job;
        struct libscols_line *line = table_line(table);
        const Wire__StatusJob *j = job->job;
        char since[FORMAT_SIZE];
        size_t cell = 0;

        table_text(line, &cell, j->name, PAINT_BOLD);
        table_printf(line, &cell, "%zu/%u", snapshot_places(job), j->world);
        table_text(line, &cell, "", PAINT_NONE);
        table_text(line, &cell, j->state, paint_state(j->state));
        table_printf(line, &cell, "%" PRIu64, j->step);
        top_rate_cell(line, &cell, row->is.rate);
        top_share_cell(line, &cell, row->is.exposed);
        table_text(line, &cell, "", PAINT_NONE);
        if (row->is.wait)
                table_printf(line, &cell, "%s, %zu member%s", format_age(since, row->is.wait->since_ms),
                             job->n_waits, format_plural(job->n_waits));
        else
                table_text(line, &cell, "", PAINT_NONE);
}

static void top_summary(const struct observation *observation, const char *remark, FILE *to) {
        size_t jobs = 0, members = 0, waits = 0;

        for (size_t i = 0; i < observation->n; i++)
                for (size_t k = 0; k < observation->snapshot[i].n_jobs; k++) {
                        jobs++;
                        members += observation->snapshot[i].job[k].n_members;
                        waits += observation->snapshot[i].job[k].n_waits;
                }
        fprintf(to, "%zu daemon%s, %zu job%s, %zu member%s, %zu waited for%s\n", observation->n,
                format_plural(observation->n), jobs, format_plural(jobs), members, format_plural(members),
                waits, remark);
}

void top_page(const struct observation *observation, const struct figures_list *list, const char *remark,
              bool color, FILE *to) {
        struct libscols_table *table = table_new(columns, array_size(columns), color);

        top_summary(observation, remark, to);
        for (size_t i = 0; i < list->n; i++) {
                top_job_line(table, &list->job[i]);
                for (size_t k = 0; k < list->job[i].job->n_members; k++)
                        top_member_line(table, list->job[i].job, &list->job[i].member[k]);
        }
        table_print(table, "", to);
}
