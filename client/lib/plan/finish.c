/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step: waiting for it, its outcome, and what can be asked about it afterwards. */
#include <math.h>
#include <stdio.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/plan/plan.h"

#define OLDEST_INFO (offsetof(struct gradsync_info, cause) + sizeof(((struct gradsync_info *)NULL)->cause))

static int finish_fail_void(const struct gradsync_plan *plan) {
        const struct gradsync_job *job = plan->job;
        const struct loss *loss = &plan->step.loss;
        int code = job_void_code(job);

        /* The job is over, and its text is about all of the members. */
        if (standing_is_over(&job->standing) && job->standing.loss.cause == WIRE__CAUSE__DEADLOCKED)
                return job_check(job);
        /* The text names the job, and the lost member. */
        fail(code, "step %llu is void on all members: %s%s", (unsigned long long)plan->step.number,
             loss->text,
             standing_is_over(&job->standing) ? loss_verdict(loss)
             : code == GRADSYNC_VOID_RETRY
                     ? "; compute it again"
                     : "; synchronise the state with gradsync_sync_state(), then compute it again");
        return loss->pid != 0 ? fail_about_member(code, loss->rank, loss->pid) : code;
}

/* Names the first parameters that are not marked. */
static int finish_fail_missing(const struct gradsync_plan *plan) {
        const struct step *step = &plan->step;
        uint32_t left = plan->layout.n_params - step->marked;
        char names[3 * (LIMIT_NAME + 4) + 1] = "";
        const char *first = "";
        uint32_t told = 0;
        size_t used = 0;

        if (plan->accumulating)
                return fail(GRADSYNC_STATE,
                            "job '%s', step %llu: gradients accumulate; switch that off "
                            "(gradsync_accumulate) before the last backward of the step",
                            plan->job->name, (unsigned long long)step->number);
        for (uint32_t i = 0; i < plan->layout.n_params && told < 3; i++) {
                if (step->mark[i] != MARK_NONE)
                        continue;
                used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%s\"", told > 0 ? ", " : "",
                                         plan->params.list[i].name);
                if (told++ == 0)
                        first = plan->params.list[i].name;
        }
        return fail_about_parameter(
                fail(GRADSYNC_STATE,
                     "job '%s', rank %u, step %llu: %u of %u parameters are neither ready nor absent: %s%s. "
                     "Mark them, then finish",
                     plan->job->name, plan->job->standing.rank, (unsigned long long)step->number, left,
                     plan->layout.n_params, names, left > told ? ", …" : ""),
                first);
}

/* Time in which at least one thread waits is exposed. */
static void finish_begin_blocked(struct gradsync_plan *plan) {
        if (plan->waiters++ == 0)
                plan->waiting_ns = clock_ns();
}

static void finish_count_blocked(struct gradsync_plan *plan, uint64_t now) {
        uint64_t blocked = now - plan->waiting_ns;

        plan->step.blocked_ns += blocked;
        plan->exposed_ns += blocked;
        plan->waiting_ns = now;
}

static void finish_end_blocked(struct gradsync_plan *plan) {
        if (--plan->waiters == 0)
                finish_count_blocked(plan, clock_ns());
}

/* The step is void: waits for the next generation, or for the end of the job. */
static int finish_wait_generation(struct gradsync_plan *plan) {
        finish_begin_blocked(plan);
        int r = job_wait_generation(plan->job);
        finish_end_blocked(plan);
        return r;
}

/* Launches the buckets that are left, and waits once. */
static int finish_wait_once(struct gradsync_plan *plan) {
        int r = ready_send(plan);

        if (r != GRADSYNC_OK || plan->step.outcome != WIRE__OUTCOME__OPEN)
                return r;
        finish_begin_blocked(plan);
        r = context_wait(plan->job->gs, NEVER);
        finish_end_blocked(plan);
        return r;
}

/* A call begins to wait. Once this member has marked all parameters of the step, it only waits for the
 * others, and the daemon may know that. */
static void finish_begin_wait(struct gradsync_plan *plan) {
        plan_note_caller(plan->job, false);
        if (plan->step.marked == plan->layout.n_params && job_waits_alone(plan->job))
                plan_say_blocked(plan, plan->step.number);
}

/* A thread in gradsync_wait(). It may wake when another one has finished its step, and the next one is
 * open. */
struct waiter {
        struct waiter *next;
        bool ended;
        /* If it has ended: OK or the code of finish(). */
        int result;
        /* Number of the step. */
        uint64_t number;
};

static void finish_add_waiter(struct gradsync_plan *plan, struct waiter *waiter) {
        *waiter = (struct waiter){ .next = plan->waiter, .number = plan->step.number };
        plan->waiter = waiter;
}

static void finish_remove_waiter(struct gradsync_plan *plan, const struct waiter *waiter) {
        struct waiter **at = &plan->waiter;

        while (*at != waiter)
                at = &(*at)->next;
        *at = waiter->next;
}

/* finish() is about to return `result`. */
static void finish_end_waiters(struct gradsync_plan *plan, int result) {
        for (struct waiter *waiter = plan->waiter; waiter != NULL; waiter = waiter->next) {
                if (waiter->ended)
                        continue;
                waiter->ended = true;
                waiter->result = result;
        }
}

static int finish_ended_result(const struct gradsync_plan *plan, const struct waiter *waiter) {
        if (waiter->result == GRADSYNC_OK)
                return GRADSYNC_OK;
        return fail(
                waiter->result,
                "job '%s', step %llu is void on all members: gradsync_finish() has said so to another thread",
                plan->job->name, (unsigned long long)waiter->number);
}

static int finish_fail_unmarked(const struct gradsync_plan *plan, uint32_t param) {
        const char *name = plan->params.list[param].name;

        fail(GRADSYNC_STATE, "job '%s', step %llu: parameter \"%s\" is waited for but not marked ready",
             plan->job->name, (unsigned long long)plan->step.number, name);
        return fail_about_parameter(GRADSYNC_STATE, name);
}

static int finish_wait_param(struct gradsync_plan *plan, uint32_t param, const struct waiter *waiter) {
        int r = GRADSYNC_OK;

        while (r == GRADSYNC_OK) {
                if (waiter->ended)
                        return finish_ended_result(plan, waiter);
                if (plan->step.outcome == WIRE__OUTCOME__VOID)
                        return finish_fail_void(plan);
                if (plan->step.done[plan->layout.bucket_of[param]])
                        return GRADSYNC_OK;
                r = job_check(plan->job);
                if (r == GRADSYNC_OK && plan->step.mark[param] == MARK_NONE)
                        r = finish_fail_unmarked(plan, param);
                if (r == GRADSYNC_OK)
                        r = finish_wait_once(plan);
        }
        return waiter->ended ? finish_ended_result(plan, waiter) : r;
}

int gradsync_wait(struct gradsync_plan *plan, uint32_t param) {
        struct waiter waiter;
        int r = plan_enter(plan, "gradsync_wait");

        if (r != GRADSYNC_OK)
                return r;
        r = plan_check_param(plan, param, "gradsync_wait");
        if (r == GRADSYNC_OK) {
                finish_add_waiter(plan, &waiter);
                finish_begin_wait(plan);
                r = finish_wait_param(plan, param, &waiter);
                plan_say_blocked(plan, 0);
                finish_remove_waiter(plan, &waiter);
        }
        return plan_leave(plan, r);
}

/* The answer of finish(): also after a loss, if the outcome came before. */
static void finish_conclude(struct gradsync_plan *plan, struct gradsync_info *info) {
        struct step *step = &plan->step;
        bool committed = step->outcome == WIRE__OUTCOME__COMMITTED;
        uint64_t now = clock_ns();

        /* Time from now on belongs to the next step. */
        if (plan->waiters > 0)
                finish_count_blocked(plan, now);
        info->step = step->number;
        info->exposed_s = (double)step->blocked_ns / (double)NSEC_PER_SEC;
        info->elapsed_s = (double)(now - plan->finished_ns) / (double)NSEC_PER_SEC;
        if (committed) {
                info->norm = results_norm(&plan->results[plan->current]);
                info->nonfinite = results_nonfinite(&plan->results[plan->current], &info->nonfinite_rank);
                info->bytes = results_bytes(&plan->results[plan->current], &plan->layout);
                plan->current ^= 1;
                plan->job->standing.tag =
                        (struct tag){ step->generation, plan->job->standing.tag.commits + 1 };
        } else {
                info->lost_rank = step->loss.rank;
                info->lost_pid = step->loss.pid;
                snprintf(info->cause, sizeof(info->cause), "%.*s", (int)sizeof(info->cause) - 1,
                         step->loss.text);
        }
        plan->finished_ns = now;
        __atomic_store_n(&plan->page->exposed_ns, plan->exposed_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&plan->page->elapsed_ns, now - plan->agreed_ns, __ATOMIC_RELAXED);
        step_begin(plan, step_next(plan, committed));
        if (plan->renewed) {
                plan->renewed = false;
                step_regenerate(plan);
        }
}

/* Waits for the outcome of the open step. */
static int finish_wait_outcome(struct gradsync_plan *plan) {
        for (;;) {
                int r;

                if (plan->step.outcome == WIRE__OUTCOME__COMMITTED)
                        return GRADSYNC_OK;
                if (plan->step.outcome == WIRE__OUTCOME__VOID) {
                        r = finish_wait_generation(plan);
                        return r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED ? r : finish_fail_void(plan);
                }
                r = job_check(plan->job);
                if (r == GRADSYNC_OK && plan->step.marked < plan->layout.n_params)
                        r = finish_fail_missing(plan);
                if (r == GRADSYNC_OK)
                        r = finish_wait_once(plan);
                if (r != GRADSYNC_OK && plan->step.outcome == WIRE__OUTCOME__OPEN)
                        return r;
        }
}

int gradsync_finish(struct gradsync_plan *plan, struct gradsync_info *ret) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        int r = ret == NULL ? GRADSYNC_OK : options_check(ret, OLDEST_INFO, "struct gradsync_info");

        if (r == GRADSYNC_OK)
                r = plan_enter(plan, "gradsync_finish");
        if (r != GRADSYNC_OK)
                return r;
        finish_begin_wait(plan);
        r = finish_wait_outcome(plan);
        plan_say_blocked(plan, 0);
        if (r == GRADSYNC_VOID_RETRY || r == GRADSYNC_VOID_BEHIND)
                plan->job->standing.told = plan->job->standing.generation;
        if (r == GRADSYNC_OK || r == GRADSYNC_VOID_RETRY || r == GRADSYNC_VOID_BEHIND) {
                finish_end_waiters(plan, r);
                finish_conclude(plan, &info);
                if (ret != NULL)
                        options_give(ret, &info, sizeof(info));
        }
        return plan_leave(plan, r);
}

bool gradsync_unused(const struct gradsync_plan *plan, uint32_t param) {
        bool unused = false;

        if (plan_enter(plan, "gradsync_unused") != GRADSYNC_OK)
                return false;
        if (plan_check_param(plan, param, "gradsync_unused") == GRADSYNC_OK)
                unused = plan->results[plan->current ^ 1].unused[param];
        plan_leave(plan, GRADSYNC_OK);
        return unused;
}

static int finish_bucket_stats(const struct gradsync_plan *plan, uint32_t bucket, int64_t rank,
                               struct gradsync_bucket_stats *stats) {
        const struct results *results = &plan->results[plan->current ^ 1];

        if (bucket >= results->n_buckets || rank < GRADSYNC_RESULT_RANK || rank >= (int64_t)results->world)
                return fail(GRADSYNC_INVALID,
                            "gradsync_bucket_stats(): there is no bucket %u of rank %lld, the plan has %u "
                            "buckets and %u ranks",
                            bucket, (long long)rank, results->n_buckets, results->world);
        const uint64_t *nonfinite = results->rank_nonfinite + (size_t)bucket * results->world;
        if (rank != GRADSYNC_RESULT_RANK) {
                stats->norm = sqrt(results->rank_squares[(size_t)bucket * results->world + (size_t)rank]);
                stats->nonfinite = nonfinite[rank];
                return GRADSYNC_OK;
        }
        stats->norm = sqrt(results->sum_squares[bucket]);
        for (uint32_t i = 0; i < results->world; i++)
                stats->nonfinite += nonfinite[i];
        return GRADSYNC_OK;
}

int gradsync_bucket_stats(const struct gradsync_plan *plan, uint32_t bucket, int64_t rank,
                          struct gradsync_bucket_stats *ret) {
        struct gradsync_bucket_stats stats = GRADSYNC_BUCKET_STATS_INIT;

        if (ret == NULL)
                return fail(GRADSYNC_INVALID, "gradsync_bucket_stats(): no place for the answer");
        int r = options_check(ret, sizeof(stats), "struct gradsync_bucket_stats");
        if (r == GRADSYNC_OK)
                r = plan_enter(plan, "gradsync_bucket_stats");
        if (r != GRADSYNC_OK)
                return r;
        r = plan_leave(plan, finish_bucket_stats(plan, bucket, rank, &stats));
        if (r == GRADSYNC_OK)
                options_give(ret, &stats, sizeof(stats));
        return r;
}
