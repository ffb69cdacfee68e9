/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers bucket results and outcomes of one plan's step into a STEP frame. */
#include "session/report.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "session/private.h"

#define RESULT_BYTES 48u /* of a result without its per-rank values, at most */
#define TAIL_BYTES 1024u /* kept free for the outcome and its text */

static void report_deferred(void *data) {
        report_flush(data);
}

void report_init(struct report *report, struct sessions *sessions) {
        report->sessions = sessions;
        report->flush = (struct loop_deferred){ .fn = report_deferred, .data = report };
        report->job = 0;
        for (unsigned i = 0; i < LIMIT_RESULTS; i++)
                report->results[i] = &report->result[i];
}

void report_deinit(struct report *report) {
        loop_defer_cancel(report->sessions->config.loop, &report->flush);
}

static struct job *report_find_job(const struct jobs *jobs, uint32_t id) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->id == id)
                        return job;
        return NULL;
}

void report_flush(struct report *report) {
        struct sessions *sessions = report->sessions;

        if (report->job == 0)
                return;
        struct job *job = report_find_job(sessions->config.jobs, report->job);
        report->job = 0;
        if (job == NULL)
                return;
        ssize_t size = codec_pack(sessions->frame, WIRE__MESSAGE_TYPE__STEP, 0, 0, &report->step.base);
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct session *session = job->local[local]->owner;

                if (session != NULL && session->state == SESSION_OPEN)
                        session->ops->send(session->transport, sessions->frame, (size_t)size, NULL, 0);
        }
        if (report->step.has_outcome && report->step.outcome == WIRE__OUTCOME__VOID)
                recovery_told(&job->recovery, machine_filling(job), clock_now());
}

/* Makes the report one of this step, sending what it held of another one. */
static void report_turn_to(struct report *report, const struct plan *plan, uint64_t step) {
        bool same = report->job == plan->job->id && report->step.plan == plan->ordinal &&
                    report->step.step == step;

        if (same && !report->step.has_outcome)
                return;
        report_flush(report);
        wire__step__init(&report->step);
        report->job = plan->job->id;
        SET(report->step, job, plan->job->id);
        SET(report->step, generation, plan->job->generation);
        SET(report->step, plan, plan->ordinal);
        SET(report->step, step, step);
        report->step.result = report->results;
        report->used_numbers = report->used_unused = report->used_bytes = 0;
        loop_defer(report->sessions->config.loop, &report->flush);
}

static bool report_fits(const struct report *report, uint32_t world, size_t unused_bytes, uint32_t bytes) {
        return report->step.n_result < LIMIT_RESULTS && report->used_numbers + world <= REPORT_NUMBERS &&
               report->used_unused + unused_bytes <= REPORT_UNUSED &&
               report->used_bytes + bytes + TAIL_BYTES <= FRAME_PAYLOAD_MAX;
}

/* A value for each rank of the world. Integers have none: 0. */
static void report_by_rank(const struct plan *plan, uint32_t bucket, const struct backend_result *result,
                           double *sums, uint64_t *counts) {
        const struct exchange *heard = plan_heard(plan, bucket);
        const struct job *job = plan->job;

        memset(sums, 0, job->world * sizeof(*sums));
        memset(counts, 0, job->world * sizeof(*counts));
        for (uint32_t rank = 0; heard != NULL && rank < job->world; rank++) {
                sums[rank] = heard->rank_sums[rank];
                counts[rank] = heard->rank_counts[rank];
        }
        for (uint32_t local = 0; heard == NULL && local < job->n_local; local++) {
                sums[job->local[local]->rank] = result->input_sum_squares[local];
                counts[job->local[local]->rank] = result->input_nonfinite[local];
        }
}

static struct report *report_of(const struct plan *plan) {
        struct sessions *sessions = job_events_data(plan->job);

        return &sessions->report;
}

void report_result(struct plan *plan, uint32_t bucket, const struct backend_result *result,
                   const uint8_t *unused, size_t unused_bytes) {
        struct report *report = report_of(plan);
        bool counts = nonfinite_count(plan, bucket, result).ranks > 0;
        uint32_t world = plan->job->world;
        uint32_t bytes =
                RESULT_BYTES + world * (counts ? 18 : 8) + (unused != NULL ? (uint32_t)unused_bytes : 0);

        report_turn_to(report, plan, plan->step + 1);
        if (!report_fits(report, world, unused != NULL ? unused_bytes : 0, bytes)) {
                report_flush(report);
                report_turn_to(report, plan, plan->step + 1);
        }
        Wire__BucketResult *entry = report->results[report->step.n_result++];
        wire__bucket_result__init(entry);
        SET(*entry, bucket, bucket);
        SET(*entry, sum_squares, result->sum_squares);
        entry->rank_sum_squares = report->sums + report->used_numbers;
        entry->rank_nonfinite = report->counts + report->used_numbers;
        report_by_rank(plan, bucket, result, entry->rank_sum_squares, entry->rank_nonfinite);
        entry->n_rank_sum_squares = world;
        entry->n_rank_nonfinite = counts ? world : 0;
        report->used_numbers += world;
        if (unused != NULL) {
                entry->has_unused = true;
                entry->unused.len = unused_bytes;
                entry->unused.data = memcpy(report->unused + report->used_unused, unused, unused_bytes);
                report->used_unused += (uint32_t)unused_bytes;
        }
        report->used_bytes += bytes;
}

void report_outcome(struct plan *plan, uint64_t step, const struct membership_loss *loss, const char *text) {
        struct report *report = report_of(plan);

        report_turn_to(report, plan, step);
        SET(report->step, outcome, loss != NULL ? WIRE__OUTCOME__VOID : WIRE__OUTCOME__COMMITTED);
        if (loss == NULL)
                return;
        snprintf(report->text, sizeof(report->text), "%s", text);
        report->step.text = report->text;
        SET(report->step, cause, loss->cause);
        SET_IF(report->step, rank, loss->pid != 0, loss->rank);
        SET_IF(report->step, pid, loss->pid != 0, loss->pid);
}
