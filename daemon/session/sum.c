/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of all jobs together. When a job ends, its counts go to those of the jobs that are gone, and to
 * each sum under way that has not come to the job yet: it began when the job was not among those that were
 * gone. */
#include "base/clock.h"
#include "job/job.h"
#include "session/private.h"
#include "session/status.h"

void sessions_sum_begin(struct sessions *sessions, struct sessions_sum *sum) {
        *sum = (struct sessions_sum){ .sum = sessions->gone };
        sum->at = (struct sessions_measure){ .what = METRICS_STATE,
                                             .all = true,
                                             .until = sessions_newest_job(sessions) };
        list_append(&sessions->sums, &sum->link);
}

static void sum_on_job(void *data, const struct metrics_job *job) {
        metrics_sum_add(data, job);
}

bool sessions_sum_go_on(struct sessions *sessions, struct sessions_sum *sum) {
        uint32_t job = sessions_measure(sessions, &sum->at, sum_on_job, &sum->sum);

        if (job != 0)
                sum->at.after = job;
        else
                sessions_sum_end(sum);
        return job != 0;
}

void sessions_sum_end(struct sessions_sum *sum) {
        if (sum->link.next != NULL)
                list_remove(&sum->link);
}

void sum_ended(const struct job *job) {
        struct sessions *sessions = job_events_data(job);
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct sessions_sum *sum;

        status_add_facts(&row, job, clock_now());
        metrics_sum_count(&sessions->gone, &row);
        list_for_each(sum, &sessions->sums, link)
                if (job->id > sum->at.after && job->id <= sum->at.until)
                        metrics_sum_count(&sum->sum, &row);
}
