/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of all jobs together. When a job ends, its counts go to those of the jobs that are gone, and to
 * each sum under way that has not come to the job yet: it began when the job was not among those that were
 * gone. */
#include "base/clock.h"
#include "report/private.h"

void reports_sum_begin(struct reports *reports, struct reports_sum *sum) {
        *sum = (struct reports_sum){ .sum = reports->gone };
        sum->at = (struct reports_measure){ .what = METRICS_STATE,
                                            .all = true,
                                            .until = reports_newest_job(reports) };
        list_append(&reports->sums, &sum->link);
}

static void sum_on_job(void *data, const struct metrics_job *job) {
        metrics_sum_add(data, job);
}

bool reports_sum_go_on(struct reports *reports, struct reports_sum *sum) {
        uint32_t job = reports_measure(reports, &sum->at, sum_on_job, &sum->sum);

        if (job != 0)
                sum->at.after = job;
        else
                reports_sum_end(sum);
        return job != 0;
}

void reports_sum_end(struct reports_sum *sum) {
        if (sum->link.next != NULL)
                list_remove(&sum->link);
}

void reports_job_ended(const struct job *job) {
        struct reports *reports = reports_of(job);
        Wire__StatusJob row = WIRE__STATUS_JOB__INIT;
        struct reports_sum *sum;

        job_facts_add(&row, job, clock_now());
        metrics_sum_count(&reports->gone, &row);
        list_for_each(sum, &reports->sums, link)
                if (job->id > sum->at.after && job->id <= sum->at.until)
                        metrics_sum_count(&sum->sum, &row);
}
