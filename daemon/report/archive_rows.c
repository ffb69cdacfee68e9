/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of an answer to STATUS about jobs that have ended. A viewer sees the same jobs as while they
 * lived. */
#include "base/clock.h"
#include "report/private.h"

/* A piece of the usual answer may have as much, so the client has room for all rows at once. */
_Static_assert(ARCHIVE_MOST *(LIMIT_NAME + ARCHIVE_TEXT + 256u) <= 96u << 10, "all of them fit a piece");

static bool archive_rows_is_traced(const struct jobs *jobs, uint32_t job) {
        const struct record *record;

        list_for_each(record, &jobs->ended.list, link)
                if (record->job == job)
                        return true;
        return false;
}

static void archive_rows_send(struct answer *answer, const struct archived_job *job) {
        Wire__StatusEnded row = WIRE__STATUS_ENDED__INIT;

        SET(row, job, job->job);
        row.name = (char *)job->name;
        SET(row, uid, job->uid);
        SET(row, incarnation, job->incarnation);
        SET(row, generation, job->generation);
        SET(row, world, job->world);
        SET(row, step, job->step);
        SET(row, ended_at, job->wall);
        SET(row, ago_ms, (answer->now - job->at) / USEC_PER_MSEC);
        row.reason = (char *)archive_reason_name(job->reason);
        row.text = (char *)job->text;
        SET_IF(row, rank, job->has_member, job->rank);
        SET_IF(row, pid, job->has_member, job->pid);
        SET(row, traced, archive_rows_is_traced(answer->query->reports->config.jobs, job->job));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_ENDED, &row.base);
}

void reports_archive(const struct query *query) {
        const struct archive *archive = &query->reports->config.jobs->archive;
        struct answer answer = answer_to(query);
        const struct archived_job *job = NULL;
        Wire__StatusEnd end = WIRE__STATUS_END__INIT;

        answer.whole = true;
        daemon_rows_send(&answer);
        SET(end, found, query_is_for_all(query));
        while ((job = archive_before(archive, job != NULL ? job->sequence : UINT64_MAX)) != NULL)
                if (query_covers(query, job->uid, job->name)) {
                        archive_rows_send(&answer, job);
                        end.found = true;
                }
        query->row(query->data, WIRE__MESSAGE_TYPE__STATUS_END, &end.base);
}
