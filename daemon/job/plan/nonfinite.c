/* SPDX-License-Identifier: Apache-2.0 */
/* A search by halves over the parameters of a bucket: a copy of a range onto itself moves nothing, and
 * counts. */
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

/* The bytes of the bucket from parameter `low` to the one before `high`. */
static void extent_of(const struct plan *plan, uint32_t bucket, uint32_t low, uint32_t high,
                      uint64_t *ret_start, uint64_t *ret_end) {
        const struct description_bucket *place = &plan->reference->bucket[bucket];
        uint64_t at = 0;

        *ret_start = *ret_end = 0;
        for (uint32_t i = 0; i < high; i++) {
                const struct description_param *param =
                        &plan->reference->param[plan->reference->order[place->first + i]];

                at = (at + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
                if (i == low)
                        *ret_start = at;
                at += param->elements * dtype_size(place->dtype);
        }
        *ret_end = at;
}

/* Counts what is not finite in the result of the parameters from `low` to `middle`. As submit(). */
static int test(struct plan *plan, uint32_t bucket, struct backend_result *ret) {
        const struct nonfinite *state = &plan->job->blame;
        const struct description_bucket *place = &plan->reference->bucket[bucket];
        struct backend *backend = plan->job->table->config.backend;
        struct backend_range range = plan_range(plan, 0, bucket);
        uint64_t start, end;

        extent_of(plan, bucket, state->low, state->middle, &start, &end);
        range.offset += start;
        return backend->compute->submit(backend,
                                        &(struct backend_task){
                                                .id = (uint64_t)plan->owner.slot << 32 | bucket,
                                                .turn = plan->job->id,
                                                .dtype = place->dtype,
                                                .reduce = WIRE__REDUCE__REDUCE_NONE,
                                                .elements = (end - start) / dtype_size(place->dtype),
                                                .n_inputs = 1,
                                                .n_outputs = 1,
                                                .inputs = &range,
                                                .outputs = &range,
                                                .statistics = true,
                                        },
                                        ret);
}

/* Chooses what to test next; false once it is known, or known not to be there. */
static bool choose(struct nonfinite *state) {
        if (state->high - state->low == 1 && state->hit)
                return false;
        if (state->high == state->low)
                return false;
        state->middle =
                state->high - state->low == 1 ? state->high : state->low + (state->high - state->low) / 2;
        return true;
}

static void narrow(struct nonfinite *state, const struct backend_result *part) {
        if (part->input_nonfinite[0] > 0) {
                state->high = state->middle;
                state->hit = true;
        } else {
                state->low = state->middle;
        }
}

static void nonfinite_tell(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;
        struct log_context context = LOG_CONTEXT_NONE;
        bool known = state->parameter[0] != '\0';
        char others[48] = "";

        context.job = plan->job->name;
        context.parameter = known ? state->parameter : NULL;
        context.rank = state->rank;
        context.pid = state->pid;
        context.step = (int64_t)state->step;
        context.bucket = state->bucket;
        context.generation = plan->job->generation;
        context.uid = plan->job->uid;
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

/* Goes on until a test is under way or there is nothing left to test: then the bucket's own result is due. */
static const struct backend_result *search(struct plan *plan, uint32_t bucket) {
        struct nonfinite *state = &plan->job->blame;
        const struct description *d = plan->reference;
        struct backend_result part;

        while (choose(state)) {
                int r = test(plan, bucket, &part);

                if (r == 0) {
                        plan->tasks++;
                        return NULL;
                }
                if (r < 0) { /* no memory: then without the parameter's name */
                        state->hit = false;
                        break;
                }
                narrow(state, &part);
        }
        if (state->hit)
                snprintf(state->parameter, sizeof(state->parameter), "%s",
                         d->param[d->order[d->bucket[bucket].first + state->low]].name);
        state->searched = NULL;
        nonfinite_tell(plan);
        return &state->result;
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
        state->low = 0;
        state->high = plan->reference->bucket[bucket].n;
        state->hit = false;
}

bool nonfinite_searches(const struct plan *plan, uint32_t bucket) {
        return plan->job->blame.searched == plan && plan->job->blame.bucket == bucket;
}

const struct backend_result *nonfinite_look(struct plan *plan, uint32_t bucket,
                                            const struct backend_result *result) {
        struct nonfinite *state = &plan->job->blame;
        uint32_t local = 0;

        if (nonfinite_searches(plan, bucket)) {
                narrow(state, result);
                return search(plan, bucket);
        }
        while (local < result->n_inputs && result->input_nonfinite[local] == 0)
                local++;
        if (local == result->n_inputs || state->burst || state->searched != NULL)
                return result;
        nonfinite_begin(plan, bucket, result, local);
        return search(plan, bucket);
}

void nonfinite_committed(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;

        state->quiet = plan->nonfinite > 0 ? 0 : state->quiet + 1;
        if (state->quiet >= NONFINITE_QUIET)
                state->burst = false;
}

/* What was not found out about a step that does not count will be about the next one. */
void nonfinite_void(struct plan *plan) {
        struct nonfinite *state = &plan->job->blame;

        if (state->searched != plan)
                return;
        state->searched = NULL;
        state->burst = false;
        state->step = 0;
}
