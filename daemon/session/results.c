/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers bucket results and outcomes of one plan's step into a STEP frame. */
#include "session/results.h"

#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "session/private.h"

#define RESULT_BYTES 48u /* of a result without its per-rank values, at most */
#define TAIL_BYTES 1024u /* kept free for the outcome and its text */

static void results_deferred(void *data) {
        results_flush(data);
}

void results_init(struct results *results, struct sessions *sessions) {
        results->sessions = sessions;
        results->flush = (struct loop_deferred){ .fn = results_deferred, .data = results };
        results->job = 0;
        for (unsigned i = 0; i < LIMIT_RESULTS; i++)
                results->entry[i] = &results->entries[i];
}

void results_deinit(struct results *results) {
        loop_defer_cancel(results->sessions->config.loop, &results->flush);
}

static struct job *results_find_job(const struct jobs *jobs, uint32_t id) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->id == id)
                        return job;
        return NULL;
}

void results_flush(struct results *results) {
        struct sessions *sessions = results->sessions;

        if (results->job == 0)
                return;
        struct job *job = results_find_job(sessions->config.jobs, results->job);
        results->job = 0;
        if (job == NULL)
                return;
        ssize_t size = codec_pack(sessions->frame, WIRE__MESSAGE_TYPE__STEP, 0, 0, &results->step.base);
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct session *session = job->local[local]->owner;

                if (session != NULL && session->state == SESSION_OPEN)
                        session->ops->send(session->transport, sessions->frame, (size_t)size, NULL, 0);
        }
        if (results->step.has_outcome && results->step.outcome == WIRE__OUTCOME__VOID)
                recovery_told(&job->recovery, machine_filling(job), clock_now());
}

/* Begins with this step, and sends what was gathered of another one. */
static void results_turn_to(struct results *results, const struct plan *plan, uint64_t step) {
        bool same = results->job == plan->job->id && results->step.plan == plan->ordinal &&
                    results->step.step == step;

        if (same && !results->step.has_outcome)
                return;
        results_flush(results);
        wire__step__init(&results->step);
        results->job = plan->job->id;
        SET(results->step, job, plan->job->id);
        SET(results->step, generation, plan->job->generation);
        SET(results->step, plan, plan->ordinal);
        SET(results->step, step, step);
        results->step.result = results->entry;
        results->used_numbers = results->used_unused = results->used_bytes = 0;
        loop_defer(results->sessions->config.loop, &results->flush);
}

static bool results_fits(const struct results *results, uint32_t world, size_t unused_bytes, uint32_t bytes) {
        return results->step.n_result < LIMIT_RESULTS && results->used_numbers + world <= RESULTS_NUMBERS &&
               results->used_unused + unused_bytes <= RESULTS_UNUSED &&
               results->used_bytes + bytes + TAIL_BYTES <= FRAME_PAYLOAD_MAX;
}

/* A value for each rank of the world. Integers have none: 0. */
static void results_by_rank(const struct plan *plan, uint32_t bucket, const struct backend_result *result,
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

void results_add(struct results *results, const struct plan *plan, const struct job_event_result *event) {
        const struct backend_result *result = event->result;
        uint32_t unused_bytes = event->unused != NULL ? (uint32_t)event->unused_bytes : 0;
        bool counts = nonfinite_count(plan, event->bucket, result).ranks > 0;
        uint32_t world = plan->job->world;
        uint32_t bytes = RESULT_BYTES + world * (counts ? 18 : 8) + unused_bytes;

        results_turn_to(results, plan, plan->step + 1);
        if (!results_fits(results, world, unused_bytes, bytes)) {
                results_flush(results);
                results_turn_to(results, plan, plan->step + 1);
        }
        Wire__BucketResult *entry = results->entry[results->step.n_result++];
        wire__bucket_result__init(entry);
        SET(*entry, bucket, event->bucket);
        SET(*entry, sum_squares, result->sum_squares);
        entry->rank_sum_squares = results->sums + results->used_numbers;
        entry->rank_nonfinite = results->counts + results->used_numbers;
        results_by_rank(plan, event->bucket, result, entry->rank_sum_squares, entry->rank_nonfinite);
        entry->n_rank_sum_squares = world;
        entry->n_rank_nonfinite = counts ? world : 0;
        results->used_numbers += world;
        if (event->unused != NULL) {
                entry->has_unused = true;
                entry->unused.len = unused_bytes;
                entry->unused.data =
                        memcpy(results->unused + results->used_unused, event->unused, unused_bytes);
                results->used_unused += unused_bytes;
        }
        results->used_bytes += bytes;
}

void results_commit(struct results *results, const struct plan *plan) {
        results_turn_to(results, plan, plan->step);
        SET(results->step, outcome, WIRE__OUTCOME__COMMITTED);
}

void results_void(struct results *results, const struct plan *plan) {
        const struct membership_loss *loss = &plan->job->loss;

        results_turn_to(results, plan, plan->step + 1);
        SET(results->step, outcome, WIRE__OUTCOME__VOID);
        memcpy(results->text, plan->job->loss_text, sizeof(results->text));
        results->step.text = results->text;
        SET(results->step, cause, loss->cause);
        SET_IF(results->step, rank, loss->pid != 0, loss->rank);
        SET_IF(results->step, pid, loss->pid != 0, loss->pid);
}
