/* SPDX-License-Identifier: Apache-2.0 */
/* The open step: its marks, its results and its outcome. */
#include "client/lib/plan/step.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/plan/plan.h"

int step_init(struct gradsync_plan *plan) {
        const struct layout *layout = &plan->layout;
        struct step *step = &plan->step;

        step->mark = calloc(layout->n_params, 1);
        step->missing = calloc(layout->n_buckets, sizeof(uint32_t));
        step->absent = calloc(layout->n_buckets, sizeof(uint32_t));
        step->done = calloc(layout->n_buckets, 1);
        plan->ready.absent_map = calloc((layout->n_params + 7) / 8, 1);
        if (step->mark && step->missing && step->absent && step->done && plan->ready.absent_map)
                return GRADSYNC_OK;
        return fail(GRADSYNC_NO_MEMORY, "no memory for the step of a plan of %u parameters",
                    layout->n_params);
}

void step_deinit(struct gradsync_plan *plan) {
        free(plan->step.mark);
        free(plan->step.missing);
        free(plan->step.absent);
        free(plan->step.done);
        free(plan->ready.absent_map);
}

void step_begin(struct gradsync_plan *plan, uint64_t number) {
        const struct layout *layout = &plan->layout;
        struct step *step = &plan->step;

        results_world(&plan->results[plan->current], plan->job->standing.world);
        signal_begin(plan);
        step->number = number;
        step->attempt++;
        step->outcome = WIRE__OUTCOME__OPEN;
        step->touched = false;
        step->marked = step->divisor = 0;
        plan->ready.sent = plan->ready.queued = 0;
        step->blocked_ns = 0;
        memset(step->mark, 0, layout->n_params);
        memset(step->absent, 0, layout->n_buckets * sizeof(uint32_t));
        memset(step->done, 0, layout->n_buckets);
        for (uint32_t b = 0; b < layout->n_buckets; b++)
                step->missing[b] = layout->bucket[b].n;
        memset(plan->page->ready, 0, (layout->n_params + 7) / 8);
        __atomic_store_n(&plan->page->step, number, __ATOMIC_RELAXED);
}

void step_void(struct gradsync_plan *plan, uint32_t rank, int32_t pid, const char *text) {
        struct step *step = &plan->step;

        if (step->outcome != WIRE__OUTCOME__OPEN)
                return;
        step->outcome = WIRE__OUTCOME__VOID;
        loss_set(&step->loss, rank, pid, text);
}

void step_regenerate(struct gradsync_plan *plan) {
        const struct loss *change = &plan->job->standing.loss;

        if (plan->step.outcome == WIRE__OUTCOME__COMMITTED)
                plan->renewed = true;
        else
                step_void(plan, change->rank, change->pid, change->text);
}

void step_resume(struct gradsync_plan *plan) {
        struct step *step = &plan->step;

        if (step->outcome != WIRE__OUTCOME__OPEN)
                return;
        plan->ready.sent = 0;
        memset(step->done, 0, plan->layout.n_buckets);
}

static const char skipped[] = "gradsyncd was restarted, and the other members have committed the step";

void step_skip(struct gradsync_plan *plan, uint64_t number) {
        if (number >= plan->step.number)
                plan->least = number + 1;
        step_void(plan, 0, 0, skipped);
        job_interrupt(plan->job, 0, 0, skipped);
}

/* The trainer would apply a result to a state that other members have without it, or that contains it
 * already. */
void step_forget(struct gradsync_plan *plan) {
        struct step *step = &plan->step;

        plan->renewed = false;
        plan->least = step_next(plan, true);
        step->outcome = WIRE__OUTCOME__VOID;
        loss_set(&step->loss, 0, 0, "this member had not finished it when the state was synchronised");
}

uint64_t step_next(const struct gradsync_plan *plan, bool committed) {
        uint64_t number = plan->step.number + committed;

        return number < plan->least ? plan->least : number;
}

static int step_take_results(struct gradsync_plan *plan, const Wire__Step *message) {
        for (size_t i = 0; i < message->n_result; i++) {
                int r = results_take(&plan->results[plan->current], &plan->layout, message->result[i]);

                if (r != GRADSYNC_OK)
                        return r;
                plan->step.done[message->result[i]->bucket] = 1;
        }
        return GRADSYNC_OK;
}

static bool step_is_complete(const struct gradsync_plan *plan) {
        return plan->ready.sent == plan->layout.n_buckets &&
               memchr(plan->step.done, 0, plan->layout.n_buckets) == NULL;
}

int step_message(struct gradsync_plan *plan, const Wire__Step *message) {
        struct step *step = &plan->step;

        if (message->generation != plan->job->standing.generation || message->step < step->number ||
            step->outcome != WIRE__OUTCOME__OPEN)
                return GRADSYNC_OK;
        if (message->step > step->number)
                return fail(GRADSYNC_PROTOCOL,
                            "job '%s', plan %u: gradsyncd speaks of step %llu while step %llu is open",
                            plan->job->name, plan->ordinal, (unsigned long long)message->step,
                            (unsigned long long)step->number);
        int r = step_take_results(plan, message);
        if (r != GRADSYNC_OK)
                return r;
        if (message->outcome == WIRE__OUTCOME__VOID) {
                step_void(plan, message->rank, message->pid, message->text);
                job_interrupt(plan->job, message->rank, message->pid, message->text);
        } else if (message->outcome == WIRE__OUTCOME__COMMITTED) {
                if (!step_is_complete(plan))
                        return fail(GRADSYNC_PROTOCOL,
                                    "job '%s', plan %u: gradsyncd committed step %llu before all of its "
                                    "results were here",
                                    plan->job->name, plan->ordinal, (unsigned long long)step->number);
                step->outcome = WIRE__OUTCOME__COMMITTED;
                step->generation = message->generation;
        }
        return GRADSYNC_OK;
}
