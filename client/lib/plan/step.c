/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open step: what is marked, what has been launched, what has come back. A bucket that does not fit the socket stays
 * where the cursor is and is launched by whoever comes by next: another ready(), a waiting call, or the caller's dispatch.
 */
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
        plan->absent_map = calloc((layout->n_params + 7) / 8, 1);
        if (step->mark && step->missing && step->absent && step->done && plan->absent_map)
                return GRADSYNC_OK;
        return fail(GRADSYNC_NO_MEMORY, "no memory for the step of a plan of %u parameters",
                    layout->n_params);
}

void step_deinit(struct gradsync_plan *plan) {
        free(plan->step.mark);
        free(plan->step.missing);
        free(plan->step.absent);
        free(plan->step.done);
        free(plan->absent_map);
}

void step_begin(struct gradsync_plan *plan, uint64_t number) {
        const struct layout *layout = &plan->layout;
        struct step *step = &plan->step;

        results_world(&plan->results[plan->current], plan->job->world);
        step->number = number;
        step->outcome = WIRE__OUTCOME__OPEN;
        step->loss.known = false;
        step->touched = false;
        step->marked = step->cursor = step->divisor = 0;
        step->blocked_ns = 0;
        memset(step->mark, 0, layout->n_params);
        memset(step->absent, 0, layout->n_buckets * sizeof(uint32_t));
        memset(step->done, 0, layout->n_buckets);
        for (uint32_t b = 0; b < layout->n_buckets; b++)
                step->missing[b] = layout->bucket[b].n;
        memset(plan->page->ready, 0, (layout->n_params + 7) / 8);
        __atomic_store_n(&plan->page->step, number, __ATOMIC_RELAXED);
}

bool step_open(const struct gradsync_plan *plan) {
        return plan->step.touched;
}

void step_void(struct gradsync_plan *plan, uint32_t rank, int32_t pid, const char *text) {
        struct step *step = &plan->step;

        if (step->outcome != WIRE__OUTCOME__OPEN)
                return;
        step->outcome = WIRE__OUTCOME__VOID;
        loss_set(&step->loss, rank, pid, text);
}

void step_regenerate(struct gradsync_plan *plan) {
        const struct loss *change = &plan->job->change;

        if (plan->step.outcome == WIRE__OUTCOME__COMMITTED)
                plan->renewed = true;
        else
                step_void(plan, change->rank, change->pid, change->text);
}

void step_resume(struct gradsync_plan *plan) {
        struct step *step = &plan->step;

        if (step->outcome != WIRE__OUTCOME__OPEN)
                return;
        step->cursor = 0;
        memset(step->done, 0, plan->layout.n_buckets);
}

static const char skipped[] = "gradsyncd was restarted, and the other members have committed the step";

void step_skip(struct gradsync_plan *plan, uint64_t number) {
        if (number >= plan->step.number)
                plan->least = number + 1;
        step_void(plan, 0, 0, skipped);
        job_interrupt(plan->job, 0, 0, skipped);
}

/* The trainer would apply a result to a state that others have without it, or that has it already. */
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
        return plan->step.cursor == plan->layout.n_buckets &&
               memchr(plan->step.done, 0, plan->layout.n_buckets) == NULL;
}

int step_message(struct gradsync_plan *plan, const Wire__Step *message) {
        struct step *step = &plan->step;
        int r;

        if (message->generation != plan->job->generation || message->step < step->number ||
            step->outcome != WIRE__OUTCOME__OPEN)
                return GRADSYNC_OK;
        if (message->step > step->number)
                return fail(GRADSYNC_PROTOCOL,
                            "job '%s', plan %u: gradsyncd speaks of step %llu while step %llu is open",
                            plan->job->name, plan->ordinal, (unsigned long long)message->step,
                            (unsigned long long)step->number);
        r = step_take_results(plan, message);
        if (r != GRADSYNC_OK)
                return r;
        if (message->outcome == WIRE__OUTCOME__VOID) {
                step_void(plan, message->rank, message->pid, message->text);
                job_interrupt(plan->job, message->rank, message->pid, message->text);
        } else if (message->outcome == WIRE__OUTCOME__COMMITTED) {
                if (!step_is_complete(plan))
                        return fail(
                                GRADSYNC_PROTOCOL,
                                "job '%s', plan %u: gradsyncd committed step %llu before all of its results were here",
                                plan->job->name, plan->ordinal, (unsigned long long)step->number);
                step->outcome = WIRE__OUTCOME__COMMITTED;
                step->generation = message->generation;
        }
        return GRADSYNC_OK;
}

/* Bit k: the bucket's k-th parameter is absent. */
static size_t ready_map_absent(struct gradsync_plan *plan, const struct layout_bucket *bucket) {
        size_t bytes = (bucket->n + 7) / 8;

        memset(plan->absent_map, 0, bytes);
        for (uint32_t k = 0; k < bucket->n; k++)
                if (plan->step.mark[plan->layout.order[bucket->first + k]] == MARK_ABSENT)
                        plan->absent_map[k / 8] |= (uint8_t)(1u << k % 8);
        return bytes;
}

static int ready_send_bucket(struct gradsync_plan *plan, uint32_t b) {
        const struct gradsync_job *job = plan->job;
        Wire__Ready ready = WIRE__READY__INIT;

        ready.has_job = ready.has_generation = ready.has_plan = ready.has_step = ready.has_bucket = true;
        ready.job = job->handle;
        ready.generation = job->generation;
        ready.plan = plan->ordinal;
        ready.step = plan->step.number;
        ready.bucket = b;
        if (plan->step.absent[b] > 0) {
                ready.has_absent = true;
                ready.absent.len = ready_map_absent(plan, &plan->layout.bucket[b]);
                ready.absent.data = plan->absent_map;
        }
        ready.has_divisor = plan->step.divisor > 0;
        ready.divisor = plan->step.divisor;
        return link_send(&job->gs->link, WIRE__MESSAGE_TYPE__READY, 0, &ready.base, -1);
}

static void ready_reduce_alone(struct gradsync_plan *plan, uint32_t b) {
        standalone_reduce(plan, b);
        plan->step.done[b] = 1;
        link_notify(&plan->job->gs->link);
        if (b + 1 == plan->layout.n_buckets)
                plan->step.outcome = WIRE__OUTCOME__COMMITTED;
}

int ready_send(struct gradsync_plan *plan) {
        struct step *step = &plan->step;

        if (plan->job->rejoin.phase != REJOIN_NONE)
                return GRADSYNC_OK;     /* all of them are said when the job goes on */
        while (step->cursor < plan->layout.n_buckets && step->missing[step->cursor] == 0 &&
               step->outcome == WIRE__OUTCOME__OPEN) {
                int r = GRADSYNC_OK;

                if (plan->job->gs->standalone)
                        ready_reduce_alone(plan, step->cursor);
                else
                        r = ready_send_bucket(plan, step->cursor);
                if (r == GRADSYNC_AGAIN)
                        return GRADSYNC_OK;
                if (r != GRADSYNC_OK)
                        return r;
                step->cursor++;
        }
        return GRADSYNC_OK;
}

bool step_outcome_due(const struct gradsync_plan *plan) {
        return plan->job->lost.known && !plan->job->over && plan->job->gs->link.failed == 0 &&
               plan->step.touched;
}

int step_check_job(const struct gradsync_plan *plan) {
        return step_outcome_due(plan) ? GRADSYNC_OK : job_check(plan->job);
}
