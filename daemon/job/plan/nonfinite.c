/* SPDX-License-Identifier: Apache-2.0 */
/* The backend finds the first such value of the result, and the description says in which parameter it
 * lies. */
#include "job/plan/nonfinite.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/plan/plan.h"
#include "proto/names.h"

static void keep_result(struct nonfinite *state, const struct backend_result *result) {
        memcpy(state->sums, result->input_sum_squares, result->n_inputs * sizeof(state->sums[0]));
        memcpy(state->counts, result->input_nonfinite, result->n_inputs * sizeof(state->counts[0]));
        state->result = *result;
        state->result.input_sum_squares = state->sums;
        state->result.input_nonfinite = state->counts;
}

/* Looks through the bucket from this element on. As submit(). */
static int nonfinite_find(struct plan *plan, uint32_t bucket, uint64_t first, struct backend_result *ret) {
        const struct description_bucket *place = &plan->reference->bucket[bucket];
        struct backend_range range = plan_range(plan, 0, bucket);
        struct backend_task task = { .dtype = place->dtype,
                                     .reduce = WIRE__REDUCE__REDUCE_NONE,
                                     .first = first,
                                     .elements = place->bytes / dtype_size(place->dtype) - first,
                                     .n_inputs = 1,
                                     .inputs = &range,
                                     .find = true,
                                     .room = plan->bucket[bucket].room };

        return tasks_submit(&plan->owner, bucket, plan->job->table->config.backend, &task, ret);
}

/* Names the parameter of an element that the search has found. False if the element lies in padding, whose
 * contents mean nothing: then the search goes on with *ret_next. A search never finds an element before one
 * that it found earlier. */
static bool nonfinite_place(struct plan *plan, uint32_t bucket, uint64_t found, uint64_t *ret_next) {
        const struct description *d = plan->reference;
        const struct description_bucket *place = &d->bucket[bucket];
        struct nonfinite *state = &plan->job->blame;
        size_t size = dtype_size(place->dtype);

        for (; found != BACKEND_NOWHERE && state->param < place->n; state->param++) {
                const struct parameter *param = description_param(d, d->order[place->first + state->param]);
                uint64_t start = (state->end + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;

                if (found * size < start) {
                        *ret_next = start / size;
                        return false;
                }
                state->end = start + param->elements * size;
                if (found * size < state->end) {
                        snprintf(state->parameter, sizeof(state->parameter), "%s", param->name);
                        return true;
                }
        }
        return true;
}

static void nonfinite_tell(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;
        struct log_context context = LOG_CONTEXT_OF(plan->job);
        bool known = state->parameter[0] != '\0';
        char others[48] = "", process[32] = "on another node";

        context.parameter = known ? state->parameter : NULL;
        context.rank = state->rank;
        context.pid = state->pid;
        context.step = (int64_t)state->step;
        context.bucket = state->bucket;
        if (state->ranks > 1)
                snprintf(others, sizeof(others), "; so did %u more rank%s", state->ranks - 1,
                         state->ranks > 2 ? "s" : "");
        if (state->pid != 0)
                snprintf(process, sizeof(process), "pid %d", (int)state->pid);
        log_write(LOG_WARNING, &context,
                  "job '%s', step %" PRIu64 ": rank %u (%s) brought %" PRIu64
                  " value%s that %s not finite: bucket %u%s%s%s%s",
                  plan->job->name, state->step, state->rank, process, state->count,
                  state->count == 1 ? "" : "s", state->count == 1 ? "is" : "are", state->bucket,
                  known ? ", parameter \"" : "", state->parameter, known ? "\"" : "", others);
}

static const struct backend_result *nonfinite_end(struct plan *plan) {
        plan->job->blame.searched = NULL;
        nonfinite_tell(plan);
        return &plan->job->blame.result;
}

/* Goes on until the backend is at work or there is nothing left to look for: then the bucket's own result is
 * due. Without memory for it the parameter has no name. */
static const struct backend_result *nonfinite_search(struct plan *plan, uint32_t bucket, uint64_t next) {
        struct backend_result part;
        int r;

        do {
                r = nonfinite_find(plan, bucket, next, &part);
                if (r == 0)
                        return NULL;
        } while (r > 0 && !nonfinite_place(plan, bucket, part.found, &next));
        return nonfinite_end(plan);
}

static void count_add(struct nonfinite_count *count, uint32_t rank, uint64_t values) {
        if (values == 0)
                return;
        if (count->ranks++ == 0) {
                count->rank = rank;
                count->first = values;
        }
        count->values += values;
}

struct nonfinite_count nonfinite_count(const struct plan *plan, uint32_t bucket,
                                       const struct backend_result *result) {
        const struct exchange *heard = plan_heard(plan, bucket);
        struct nonfinite_count count = { 0 };

        for (uint32_t rank = 0; heard != NULL && rank < plan->job->world; rank++)
                count_add(&count, rank, heard->rank_counts[rank]);
        for (unsigned i = 0; heard == NULL && i < result->n_inputs; i++)
                count_add(&count, plan->job->local[i]->rank, result->input_nonfinite[i]);
        return count;
}

static pid_t nonfinite_pid(const struct job *job, uint32_t rank) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->rank == rank)
                        return job->local[local]->pid;
        return 0;
}

static void nonfinite_begin(struct plan *plan, uint32_t bucket, const struct backend_result *result,
                            const struct nonfinite_count *count) {
        struct nonfinite *state = &plan->job->blame;

        keep_result(state, result);
        state->burst = true;
        state->quiet = 0;
        state->step = plan->step + 1;
        state->plan = plan->ordinal;
        state->bucket = bucket;
        state->rank = count->rank;
        state->pid = nonfinite_pid(plan->job, count->rank);
        state->count = count->first;
        state->ranks = count->ranks;
        state->parameter[0] = '\0';
        state->searched = plan;
        state->param = 0;
        state->end = 0;
}

bool nonfinite_searches(const struct plan *plan, uint32_t bucket) {
        return plan->job->blame.searched == plan && plan->job->blame.bucket == bucket;
}

const struct backend_result *nonfinite_look(struct plan *plan, uint32_t bucket,
                                            const struct backend_result *result) {
        struct nonfinite *state = &plan->job->blame;
        struct nonfinite_count count;
        uint64_t next;

        if (nonfinite_searches(plan, bucket))
                return nonfinite_place(plan, bucket, result->found, &next)
                               ? nonfinite_end(plan)
                               : nonfinite_search(plan, bucket, next);
        count = nonfinite_count(plan, bucket, result);
        if (count.ranks == 0 || state->burst || state->searched != NULL)
                return result;
        nonfinite_begin(plan, bucket, result, &count);
        return nonfinite_search(plan, bucket, 0);
}

void nonfinite_committed(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;

        state->quiet = plan->nonfinite > 0 ? 0 : state->quiet + 1;
        if (state->quiet >= NONFINITE_QUIET)
                state->burst = false;
}

/* The search is given up with its step; the next step that has such a value is searched instead. */
void nonfinite_void(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;

        if (state->searched != plan)
                return;
        state->searched = NULL;
        state->burst = false;
        state->step = 0;
}
