/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marking parameters: the calls that trainers make from backward, from any thread. This is the hot path of
 * the library: no allocation, no waiting, one system call per bucket.
 */
#include <string.h>

#include "client/lib/base/fail.h"
#include "client/lib/plan/plan.h"
#include "proto/names.h"

/* Whether a new step begins with this mark: the open one was void before any parameter was marked in it, and
 * another call has reported that. If the state has to be synchronised, steps begin after that. */
static bool mark_is_afresh(const struct gradsync_plan *plan) {
        const struct standing *standing = &plan->job->standing;

        return plan->step.outcome == WIRE__OUTCOME__VOID && !plan->step.touched && !plan->accumulating &&
               standing->state == STANDING_SETTLED && standing->told == standing->generation &&
               !standing_is_behind(standing);
}

/* Whether the parameter is to be counted now: neither while gradients accumulate, nor in a void step. */
static int mark_begin(struct gradsync_plan *plan, uint32_t param, enum mark mark, const char *call,
                      bool *ret_count) {
        struct step *step = &plan->step;
        int r = plan_check_param(plan, param, call);

        *ret_count = false;
        if (r != GRADSYNC_OK)
                return r;
        if (mark_is_afresh(plan))
                step_begin(plan, step_next(plan, false));
        if (step->outcome == WIRE__OUTCOME__VOID) {
                /* finish() has to report that this mark was dropped. */
                step->touched |= !plan->accumulating;
                return GRADSYNC_OK;
        }
        r = job_check(plan->job);
        if (r != GRADSYNC_OK || plan->accumulating)
                return r;
        if (step->mark[param] != MARK_NONE)
                return fail_about_parameter(
                        fail(GRADSYNC_STATE,
                             "job '%s', step %llu: parameter \"%s\" is marked %s already; a parameter is "
                             "marked once in a step, and its gradient is gradsync's until gradsync_finish()",
                             plan->job->name, (unsigned long long)step->number, plan->params.list[param].name,
                             step->mark[param] == MARK_ABSENT ? "absent" : "ready"),
                        plan->params.list[param].name);
        if (plan->drop)
                return fail_constant(GRADSYNC_STATE, "the plan is being freed");
        step->mark[param] = (uint8_t)mark;
        step->touched = true;
        *ret_count = true;
        return GRADSYNC_OK;
}

/* The GPU has made all gradients of a bucket, which counted as missing until now. */
static void mark_complete(struct gradsync_plan *plan, uint32_t bucket) {
        struct link *link = &plan->job->gs->link;

        if (plan->step.outcome != WIRE__OUTCOME__OPEN)
                return;
        plan->step.missing[bucket] = 0;
        ready_append(plan);
        int r = ready_send(plan);
        if (r != GRADSYNC_OK)
                link_fail(link, r);
        link_notify(link);
}

static int mark_end(struct gradsync_plan *plan, uint32_t param) {
        uint32_t b = plan->layout.bucket_of[param];
        struct step *step = &plan->step;

        plan_note_caller(plan->job, false);
        step->marked++;
        if (step->mark[param] == MARK_ABSENT)
                step->absent[b]++;
        diagnosis_mark(plan->page, param);
        /* A parameter that waits for events counts as missing until they have ended. */
        if (step->missing[b] == 1 && signal_defer(plan, b, mark_complete))
                return GRADSYNC_OK;
        if (--step->missing[b] > 0)
                return GRADSYNC_OK;
        ready_append(plan);
        return ready_send(plan);
}

/* While there is no daemon, each call looks for one. */
static void mark_tend(const struct gradsync_plan *plan) {
        struct link *link = &plan->job->gs->link;

        if (link->state == LINK_UP && plan->job->rejoin.phase == REJOIN_NONE)
                return;
        if (!link->polling)
                link_take(link);
        link_tend(link);
}

int gradsync_ready(struct gradsync_plan *plan, uint32_t param) {
        bool count;
        int r = plan_enter(plan, "gradsync_ready");

        if (r != GRADSYNC_OK)
                return r;
        r = mark_begin(plan, param, MARK_READY, "gradsync_ready", &count);
        if (count)
                r = mark_end(plan, param);
        mark_tend(plan);
        return plan_leave(plan, r);
}

static int mark_check_gpu(const struct gradsync_plan *plan, const char *call) {
        if (plan->signal.bucket != NULL)
                return GRADSYNC_OK;
        return fail(GRADSYNC_INVALID, "%s(): the plan's gradients are not on a GPU: gradsyncd serves %s",
                    call,
                    plan->job->gs->standalone ? "none, this process is alone" : plan->job->gs->device_name);
}

/* The mark is undone if the stream is of no use: the caller may try again. */
static int mark_record(struct gradsync_plan *plan, uint32_t param, cuda_stream stream) {
        int r = signal_record(plan, plan->layout.bucket_of[param], stream);

        if (r != GRADSYNC_OK)
                plan->step.mark[param] = MARK_NONE;
        return r == GRADSYNC_OK ? mark_end(plan, param) : r;
}

int gradsync_ready_on(struct gradsync_plan *plan, uint32_t param, void *stream) {
        bool count = false;
        int r = plan_enter(plan, "gradsync_ready_on");

        if (r != GRADSYNC_OK)
                return r;
        r = mark_check_gpu(plan, "gradsync_ready_on");
        if (r == GRADSYNC_OK)
                r = mark_begin(plan, param, MARK_READY, "gradsync_ready_on", &count);
        if (count)
                r = mark_record(plan, param, stream);
        mark_tend(plan);
        return plan_leave(plan, r);
}

static int mark_check_absent(const struct gradsync_plan *plan) {
        if (plan->reduce == GRADSYNC_AVG || plan->reduce == GRADSYNC_SUM)
                return GRADSYNC_OK;
        return fail(GRADSYNC_INVALID,
                    "gradsync_absent(): the plan computes the %s, to which an absent parameter contributes "
                    "nothing that is defined",
                    reduce_name(plan->reduce));
}

/* On a GPU the stream clears the parameter, so the call does not wait. */
static int mark_absent_on(struct gradsync_plan *plan, uint32_t param, bool own, cuda_stream stream) {
        struct device *device = plan->job->gs->device;
        void *address = plan_address(plan, param);
        uint64_t bytes = plan->params.list[param].bytes;
        int r = own ? device_clear(device, address, bytes, &stream)
                    : device_clear_on(device, address, bytes, stream);

        if (r != GRADSYNC_OK)
                plan->step.mark[param] = MARK_NONE;
        return r == GRADSYNC_OK ? mark_record(plan, param, stream) : r;
}

int gradsync_absent_on(struct gradsync_plan *plan, uint32_t param, void *stream) {
        bool count = false;
        int r = plan_enter(plan, "gradsync_absent_on");

        if (r != GRADSYNC_OK)
                return r;
        r = mark_check_gpu(plan, "gradsync_absent_on");
        if (r == GRADSYNC_OK)
                r = mark_check_absent(plan);
        if (r == GRADSYNC_OK)
                r = mark_begin(plan, param, MARK_ABSENT, "gradsync_absent_on", &count);
        if (count)
                r = mark_absent_on(plan, param, false, stream);
        mark_tend(plan);
        return plan_leave(plan, r);
}

/* An absent parameter adds zero. It may be large, so other threads go on while it is cleared; the bucket
 * cannot be launched meanwhile, for this parameter is still missing in it. */
int gradsync_absent(struct gradsync_plan *plan, uint32_t param) {
        bool count = false;
        int r = plan_enter(plan, "gradsync_absent");

        if (r != GRADSYNC_OK)
                return r;
        r = mark_check_absent(plan);
        if (r == GRADSYNC_OK)
                r = mark_begin(plan, param, MARK_ABSENT, "gradsync_absent", &count);
        if (count && plan->signal.bucket != NULL) {
                r = mark_absent_on(plan, param, true, NULL);
                count = false;
        }
        if (!count)
                return plan_leave(plan, r);
        uint64_t attempt = plan->step.attempt;
        plan_leave(plan, r);
        memset(plan_address(plan, param), 0, plan->params.list[param].bytes);
        pthread_mutex_lock(&plan->job->gs->link.lock);
        if (plan->step.attempt == attempt && plan->step.mark[param] == MARK_ABSENT &&
            plan->step.outcome == WIRE__OUTCOME__OPEN)
                r = mark_end(plan, param);
        mark_tend(plan);
        return plan_leave(plan, r);
}

int gradsync_accumulate(struct gradsync_plan *plan, bool on) {
        int r = plan_enter(plan, "gradsync_accumulate");

        if (r != GRADSYNC_OK)
                return r;
        r = job_check(plan->job);
        if (r == GRADSYNC_OK && on && plan->step.touched)
                r = fail(GRADSYNC_STATE,
                         "job '%s', step %llu: parameters are marked already; accumulation starts between "
                         "steps",
                         plan->job->name, (unsigned long long)plan->step.number);
        if (r == GRADSYNC_OK)
                plan->accumulating = on;
        return plan_leave(plan, r);
}

int gradsync_divisor(struct gradsync_plan *plan, uint32_t divisor) {
        int r = plan_enter(plan, "gradsync_divisor");

        if (r != GRADSYNC_OK)
                return r;
        r = job_check(plan->job);
        if (r == GRADSYNC_OK && plan->reduce != GRADSYNC_AVG)
                r = fail(GRADSYNC_INVALID,
                         "gradsync_divisor(): the plan computes the %s, which divides by nothing",
                         reduce_name(plan->reduce));
        if (r == GRADSYNC_OK && plan->ready.sent > 0 && divisor != plan->step.divisor)
                r = fail(GRADSYNC_STATE,
                         "job '%s', step %llu: bucket 0 is on its way already; set the divisor before the "
                         "first parameter is ready",
                         plan->job->name, (unsigned long long)plan->step.number);
        if (r == GRADSYNC_OK)
                plan->step.divisor = divisor;
        return plan_leave(plan, r);
}
