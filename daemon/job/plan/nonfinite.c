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
                                     .watch = true,
                                     .room = plan->bucket[bucket].room };

        return tasks_submit(&plan->owner, bucket, plan->job->table->config.backend, &task, ret);
}

/* This element of the bucket was found. False if it is the padding's, whose contents mean nothing: then the
 * search goes on with *ret_next. What was found later is never before what was found earlier. */
static bool nonfinite_place(struct plan *plan, uint32_t bucket, uint64_t found, uint64_t *ret_next) {
        const struct description *d = plan->reference;
        const struct description_bucket *place = &d->bucket[bucket];
        struct nonfinite *state = &plan->job->blame;
        size_t size = dtype_size(place->dtype);

        for (; found != BACKEND_NOWHERE && state->param < place->n; state->param++) {
                const struct description_param *param = &d->param[d->order[place->first + state->param]];
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
        char others[48] = "";

        context.parameter = known ? state->parameter : NULL;
        context.rank = state->rank;
        context.pid = state->pid;
        context.step = (int64_t)state->step;
        context.bucket = state->bucket;
        if (state->ranks > 1)
                snprintf(others, sizeof(others), "; so did %u more rank%s", state->ranks - 1,
                         state->ranks > 2 ? "s" : "");
        log_write(LOG_WARNING, &context,
                  "job '%s', step %" PRIu64 ": rank %u (pid %d) brought %" PRIu64
                  " value%s that %s not finite: bucket %u%s%s%s%s",
                  plan->job->name, state->step, state->rank, (int)state->pid, state->count,
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

static void nonfinite_begin(struct plan *plan, uint32_t bucket, const struct backend_result *result,
                            uint32_t local) {
        struct nonfinite *state = &plan->job->blame;
        const struct member *member = plan->job->local[local];

        keep_result(state, result);
        state->burst = true;
        state->quiet = 0;
        state->step = plan->step + 1;
        state->plan = plan->ordinal;
        state->bucket = bucket;
        state->rank = member->rank;
        state->pid = member->pid;
        state->count = result->input_nonfinite[local];
        state->ranks = 0;
        for (unsigned i = local; i < result->n_inputs; i++)
                state->ranks += result->input_nonfinite[i] > 0;
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
        uint32_t local = 0;
        uint64_t next;

        if (nonfinite_searches(plan, bucket))
                return nonfinite_place(plan, bucket, result->found, &next)
                               ? nonfinite_end(plan)
                               : nonfinite_search(plan, bucket, next);
        while (local < result->n_inputs && result->input_nonfinite[local] == 0)
                local++;
        if (local == result->n_inputs || state->burst || state->searched != NULL)
                return result;
        nonfinite_begin(plan, bucket, result, local);
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
