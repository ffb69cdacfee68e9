/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of an answer to STATUS about jobs that have ended. A viewer sees the same jobs as while they
 * lived. */
#include "base/clock.h"
#include "session/status.h"

/* A piece of the usual answer may have as much, so the client has room for all rows at once. */
_Static_assert(ENDINGS_MOST *(LIMIT_NAME + ENDING_TEXT + 256u) <= 96u << 10, "all of them fit a piece");

static bool ended_is_traced(const struct jobs *jobs, uint32_t job) {
        const struct record *record;

        list_for_each(record, &jobs->ended.list, link)
                if (record->job == job)
                        return true;
        return false;
}

static void ended_send_job(struct answer *answer, const struct job_ending *ending) {
        Wire__StatusEnded row = WIRE__STATUS_ENDED__INIT;

        SET(row, job, ending->job);
        row.name = (char *)ending->name;
        SET(row, uid, ending->uid);
        SET(row, incarnation, ending->incarnation);
        SET(row, generation, ending->generation);
        SET(row, world, ending->world);
        SET(row, step, ending->step);
        SET(row, ended_at, ending->wall);
        SET(row, ago_ms, (answer->now - ending->at) / USEC_PER_MSEC);
        row.reason = (char *)ending_reason_name(ending->reason);
        row.text = (char *)ending->text;
        SET_IF(row, rank, ending->has_member, ending->rank);
        SET_IF(row, pid, ending->has_member, ending->pid);
        SET(row, traced, ended_is_traced(answer->sessions->config.jobs, ending->job));
        answer_give(answer, 1, WIRE__MESSAGE_TYPE__STATUS_ENDED, &row.base);
}

uint32_t ended_send_jobs(struct answer *answer) {
        const struct endings *endings = &answer->sessions->config.jobs->endings;
        const struct job_ending *ending = NULL;
        uint32_t n = 0;

        while ((ending = endings_before(endings, ending != NULL ? ending->sequence : UINT64_MAX)) != NULL) {
                if (!session_sees(answer->viewer, ending->uid) ||
                    !status_asks_for(answer->asked, ending->uid, ending->name))
                        continue;
                ended_send_job(answer, ending);
                n++;
        }
        return n;
}
