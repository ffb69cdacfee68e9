/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stall watch. If a step waits for members longer than max(stall_notice, 3 x the median step), or an
 * operation outside steps longer than stall_notice, the daemon logs that and tells the members, once. It also
 * logs the end of such a wait (plan/stalled.h). After the step deadline the members that it waits for are
 * evicted, unless a debugger holds them. Members start at different times, so jobs that form and plans that
 * are to be agreed on get more patience, and have time-outs of their own.
 */
#include "job/watch/stall.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/proc.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan.h"
#include "job/plan/step.h"
#include "job/watch/waits.h"
#include "proto/names.h"

#define NAMED 16u          /* most members that are named in one notice */
#define NOTICES 512u       /* most frames that it may cost: fewer are named to the members of a large job */
#define START_PATIENCE 10u /* times stall_notice */
#define THREADS 128u       /* threads that are looked at for one job in one tick */
#define AGAIN (2 * USEC_PER_SEC) /* after which other nodes are looked at again, while a stall lasts */
#define MARKS 65536u             /* parameters that are looked at: as many as a plan may have */

/* "rank 1 (pid 4242)", with the state of its process where one is given. */
static void stall_name(const struct job *job, const struct job_wait *wait, const char *state,
                       char whom[WAIT_TEXT]) {
        wait_text(job, wait, whom);
        if (whom[0] == '\0')
                snprintf(whom, WAIT_TEXT, "rank %u%s%.64s (pid %d%s%s)", wait->rank,
                         wait->host[0] != '\0' ? " on host " : "", wait->host, (int)wait->pid,
                         state[0] != '\0' ? ", " : "", state);
}

static void describe(const struct job *job, const struct job_wait *wait, uint64_t now, char *text,
                     size_t size) {
        const struct operation_request *call = &job->operation.first;
        char what[64], where[LIMIT_NAME + 64] = "", whom[WAIT_TEXT];

        stall_name(job, wait, wait->process_state, whom);
        if (wait->kind == WAIT_MEMORY)
                snprintf(what, sizeof(what), "memory");
        else if (wait->step > 0)
                snprintf(what, sizeof(what), "step %" PRIu64, wait->step);
        else if (wait->kind == WAIT_PLAN || wait->purpose == WAIT_PLAN)
                snprintf(what, sizeof(what), "agreement on plan %u", wait->plan);
        else if (job->operation.n_calls == 0)
                snprintf(what, sizeof(what), "an operation");
        else
                snprintf(what, sizeof(what), "operation %" PRIu64 ", %s", call->sequence,
                         operation_name(call->kind));
        if (wait->kind == WAIT_STEP && wait->parameter[0] != '\0')
                snprintf(where, sizeof(where), ": bucket %u, parameter \"%s\"", wait->bucket,
                         wait->parameter);
        else if (wait->kind == WAIT_STEP)
                snprintf(where, sizeof(where), ": bucket %u", wait->bucket);
        snprintf(text, size, "job '%s', %s: waiting %.1f s for %s%s", job->name, what,
                 (double)(now - wait->since) / 1e6, whom, where);
}

/* Whether the log has it now. */
static bool stall_notify(struct job *job, const struct job_wait *wait, uint64_t now) {
        struct log_context context = LOG_CONTEXT_OF(job);
        bool logged = flood_admits(FLOOD_STALLS, job->uid, now);
        char text[700];

        describe(job, wait, now, text, sizeof(text));
        if (wait->rank != UINT32_MAX)
                context.rank = wait->rank;
        if (wait->pid != 0)
                context.pid = wait->pid;
        context.parameter = wait->parameter[0] != '\0' ? wait->parameter : NULL;
        if (wait->step > 0)
                context.step = (int64_t)wait->step;
        if (wait->step > 0 && wait->bucket != UINT32_MAX)
                context.bucket = wait->bucket;
        if (logged)
                log_write(wait->kind == WAIT_PLAN ? LOG_NOTICE : LOG_WARNING, &context, "%s", text);
        job_tell(job, (struct job_event){ .kind = JOB_EVENT_STALL, .stall = { wait, text } });
        return logged;
}

/* How many missing members are named to all members of the job. */
static unsigned most_told(const struct job *job) {
        return job->n_local < NOTICES / NAMED ? NAMED : NOTICES / job->n_local;
}

static void stall_give_up(struct job *job, const struct job_wait *wait, uint64_t now) {
        struct refusal refusal;
        char text[700];

        if (wait->member == NULL || strcmp(wait->process_state, "traced") == 0 || wait->member->owner == NULL)
                return;
        describe(job, wait, now, text, sizeof(text));
        refuse_for(&refusal, WIRE__CODE__MEMBER_LOST, wait->rank, (int32_t)wait->pid,
                   "%s; the step deadline of %.1f s has passed", text,
                   (double)job->table->config.step_deadline / 1e6);
        wait->member->overdue = true;
        member_expel(wait->member, &refusal);
}

/* Processes are looked at only when something is to be said of them, not in every tick. Whether the log has
 * named the first one now. */
static bool act(struct job *job, struct job_wait *waits, unsigned n, bool *told, uint64_t deadline,
                uint64_t now) {
        struct looks looks = { THREADS, MARKS };
        bool logged = false;

        for (unsigned i = 0; i < n; i++) {
                bool over = now - waits[i].since >= deadline;
                bool untold = !*told && i < most_told(job);

                if ((untold || over) && waits[i].member != NULL) {
                        waits[i].parameter = plan_wait_parameter(&waits[i], &looks);
                        waits[i].process_state = proc_state_threads(waits[i].pid, &looks.threads);
                }
                if (untold)
                        logged |= stall_notify(job, &waits[i], now) && i == 0;
                if (over)
                        stall_give_up(job, &waits[i], now);
        }
        *told = true;
        return logged;
}

/* The log says, too, when step or operation `number` is over. */
static void stall_keep(const struct job *job, struct stalled *stalled, uint64_t number,
                       const struct job_wait *waits, unsigned n) {
        char whom[WAIT_TEXT], others[32] = "";

        stall_name(job, &waits[0], "", whom);
        if (n > 1)
                snprintf(others, sizeof(others), " and %u more", n - 1);
        stalled->number = number;
        stalled->generation = job->generation;
        stalled->since = waits[0].since;
        snprintf(stalled->whom, sizeof(stalled->whom), "%.120s%s", whom, others);
}

/* Puts the members of other nodes, as they are at that time, and processes of engines that do not answer, in
 * place of a wait for these nodes. 0 until that is known, which is not long. */
static unsigned stall_blame(struct job *job, struct job_wait *waits, unsigned n, uint64_t at) {
        const struct jobs_observer *observer = job->table->config.observer;

        if (n == 0 || waits[0].kind != WAIT_NODES)
                return n;
        if (!observer->inquire(job, at))
                return 0;
        const struct job_wait nodes = waits[0];
        n = observer->blame(job, &nodes, waits, NAMED);
        if (helper_waits(job, waits + n, NAMED - n) > 0)
                wait_take_purpose(&waits[n++], &nodes);
        if (n == 0)
                waits[n++] = nodes;
        return n;
}

uint64_t stall_patience(const struct job *job) {
        uint64_t usual = hist_median(&job->steps) * 3;

        return usual > job->table->config.stall_notice ? usual : job->table->config.stall_notice;
}

static void check_plan(struct job *job, struct plan *plan, uint64_t now) {
        uint64_t patience = stall_patience(job);
        struct job_wait waits[NAMED];

        if (!plan_is_open(plan) || step_gate(plan) != GATE_OPEN || now - plan->opened < patience / 2)
                return;
        unsigned n = plan_waits(plan, waits, NAMED);
        if (n == 0 || now - waits[0].since < patience || now - plan->opened < patience)
                return;
        n = stall_blame(job, waits, n, plan->stalled.told ? now - AGAIN : waits[0].since + patience);
        if (n > 0 && act(job, waits, n, &plan->stalled.told, job->table->config.step_deadline, now))
                stall_keep(job, &plan->stalled, plan->step + 1, waits, n);
}

static void check_agreement(struct job *job, struct plan *plan, uint64_t now) {
        struct job_wait waits[NAMED];
        unsigned n = plan->stalled.told ? 0 : plan_waits(plan, waits, NAMED);

        if (n == 0 || now - waits[0].since < START_PATIENCE * job->table->config.stall_notice)
                return;
        n = stall_blame(job, waits, n, waits[0].since + START_PATIENCE * job->table->config.stall_notice);
        if (n > 0)
                act(job, waits, n, &plan->stalled.told, UINT64_MAX, now); /* it has a time-out of its own */
}

/* Only the log says it: processes that have not joined yet receive no notices. */
static void check_forming(struct job *job, uint64_t now) {
        struct log_context context = LOG_CONTEXT_NONE;
        struct job_wait waits[LIMIT_LOCAL];
        char others[32] = "", missing[256];
        unsigned n = job->stall_told ? 0 : job_waits(job, waits, LIMIT_LOCAL);

        if (job->cluster && !list_empty(&job->members)) /* for the log, and for a join that times out */
                job->table->config.observer->inquire(job, now - AGAIN);
        if (n == 0 || now - waits[0].since < START_PATIENCE * job->table->config.stall_notice)
                return;
        job->stall_told = true;
        if (!flood_admits(FLOOD_STALLS, job->uid, now))
                return;
        context.job = job->name;
        context.uid = job->uid;
        context.rank = waits[0].rank;
        if (n > 1)
                snprintf(others, sizeof(others), " and %u more", n - 1);
        job->table->config.observer->missing(job, missing, sizeof(missing));
        log_write(LOG_NOTICE, &context, "job '%s': waiting %.1f s for rank %u%s to join%s%s", job->name,
                  (double)(now - waits[0].since) / 1e6, waits[0].rank, others, missing[0] != '\0' ? ": " : "",
                  missing);
}

/* Memory that the backend does not provide is only reported: the requests that wait for it have time-outs of
 * their own. */
static void check_backend(struct job *job, uint64_t now) {
        struct job_wait waits[NAMED];
        unsigned n = memory_waits(job, waits, NAMED);

        if (n == 0 || now - waits[0].since < START_PATIENCE * job->table->config.stall_notice)
                job->stall_told = false;
        else if (!job->stall_told)
                act(job, waits, n, &job->stall_told, UINT64_MAX, now);
}

static void check_operation(struct job *job, uint64_t now) {
        struct job_wait waits[NAMED];
        unsigned n = operation_waits(job, waits, NAMED);

        if (n == 0 || now - waits[0].since < job->table->config.stall_notice)
                return;
        n = stall_blame(job, waits, n,
                        job->operation.stalled.told ? now - AGAIN
                                                    : waits[0].since + job->table->config.stall_notice);
        if (n > 0 && act(job, waits, n, &job->operation.stalled.told, job->table->config.step_deadline, now))
                stall_keep(job, &job->operation.stalled, job->operation.first.sequence + 1, waits, n);
}

/* Keeps the wait of another node for members here, so that its end is logged. */
static void stall_keep_wanted(struct job *job, const struct want *want, const struct job_wait *waits,
                              unsigned n) {
        struct plan *plan = plan_find(job, want->plan);

        if (want->what == WAIT_STEP && plan != NULL)
                stall_keep(job, &plan->stalled, want->step, waits, n);
        else if (want->what == WAIT_OPERATION)
                stall_keep(job, &job->operation.stalled, want->step + 1, waits, n);
}

/* Reports members here for which only another node waits. */
static void check_wants(struct job *job, uint64_t now) {
        struct job_wait waits[NAMED];

        for (unsigned i = 0; i < JOB_WANTS; i++) {
                unsigned n = wanted_waits(job, &job->want[i], waits, NAMED);

                if (n > 0 && now - waits[0].since >= stall_patience(job) &&
                    act(job, waits, n, &job->want[i].told, job->table->config.step_deadline, now))
                        stall_keep_wanted(job, &job->want[i], waits, n);
        }
}

bool stall_is_told(const struct job *job) {
        const struct plan *plan;

        if (job->operation.stalled.told && job->operation.n_calls > 0)
                return true;
        list_for_each(plan, &job->plans, link)
                if (plan->stalled.told && (!plan->agreed || plan_is_open(plan)))
                        return true;
        return false;
}

void stall_check(struct job *job, uint64_t now) {
        struct plan *plan;

        if (job->state == JOB_FORMING)
                check_forming(job, now);
        if (job->state != JOB_RUNNING)
                return;
        list_for_each(plan, &job->plans, link)
                if (plan->agreed)
                        check_plan(job, plan, now);
                else
                        check_agreement(job, plan, now);
        check_operation(job, now);
        check_wants(job, now);
        check_backend(job, now);
}
