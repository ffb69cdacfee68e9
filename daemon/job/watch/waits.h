/* SPDX-License-Identifier: Apache-2.0 */
/* The members that a job waits for: to join it, to come back, for a plan or its open step, or for an
 * operation. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct member;
struct plan;

enum wait_kind {
        WAIT_STEP,
        WAIT_PLAN,
        WAIT_OPERATION,
        WAIT_JOIN,
};

/* One member that others wait for. Strings live until the next call into the job layer. */
struct job_wait {
        enum wait_kind kind;
        struct member *member; /* the one that is missing; NULL for WAIT_JOIN: it has not come */
        uint32_t rank;
        pid_t pid; /* 0: it has not come */
        uint32_t plan, bucket;
        /* Filled by the code that shows the wait, with proc_state_threads() and plan_wait_parameter(). "":
         * not known. */
        const char *process_state;
        const char *parameter;
        uint64_t step;
        uint64_t since; /* clock_now() at which the wait began */
};

/* Looking at processes and at shared memory takes time: how much of it is still allowed. */
struct looks {
        unsigned threads, marks; /* of processes; of parameters, in shared memory */
};

/* All members that the job waits for now, at most `max`. */
unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max);
/* Members without whom the operation cannot be carried out. */
unsigned operation_waits(struct job *job, struct job_wait *waits, unsigned max);
/* Members without whom the plan is not agreed, or the step not complete. */
unsigned plan_waits(struct plan *plan, struct job_wait *waits, unsigned max);
/* The parameter that a wait for a step is about; "" where it is not known, or not found among the first
 * looks->marks of its bucket, from which those are taken that were looked at. */
const char *plan_wait_parameter(const struct job_wait *wait, struct looks *looks);
/* How long the member was blocked, and how long it was watched, in nanoseconds. Its library has written these
 * numbers, and can write anything. False if they are not known. */
bool plan_read_times(const struct plan *plan, uint32_t local, uint64_t times[2]);
