/* SPDX-License-Identifier: Apache-2.0 */
/* The waits of a job. It waits for members to join it, to come back, or to do their part of a plan, its open
 * step or an operation; for other nodes; or for the backend. Another node may wait for a member here although
 * no member here does. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct member;
struct plan;
struct want;

enum wait_kind {
        WAIT_STEP,
        WAIT_PLAN,
        WAIT_OPERATION,
        WAIT_JOIN,
        WAIT_NODES,  /* all members here have done their part: the exchange between nodes is not done */
        WAIT_MEMORY, /* the backend is at work on some memory of that rank */
        WAIT_SILENT, /* the daemon of another node, or of the coordinator, says nothing */
        WAIT_HELPER, /* the engine's process, here or on another node, does not answer its daemon */
};

/* One member that others wait for, or something else that they wait for. Strings live until the next call
 * into the job layer. */
struct job_wait {
        enum wait_kind kind;
        struct member *member;  /* the one that is missing; NULL: it has not come, or is not to blame */
        enum wait_kind purpose; /* WAIT_NODES: STEP, PLAN or OPERATION */
        uint32_t rank;          /* UINT32_MAX for WAIT_NODES, WAIT_SILENT, WAIT_HELPER */
        pid_t pid;              /* 0: it has not come */
        uint32_t plan, bucket;  /* WAIT_NODES: UINT32_MAX for the vote */
        /* Filled by the code that shows the wait, with proc_state_threads() and plan_wait_parameter(). "":
         * not known. */
        const char *process_state;
        const char *parameter;
        const char *host;  /* where it is; "": here */
        const char *text;  /* WAIT_SILENT, WAIT_HELPER elsewhere: the known facts; else "" */
        uint64_t step;     /* WAIT_NODES: 0 for a plan or an operation */
        uint64_t sequence; /* of the operation */
        uint64_t since;    /* clock_now() at which the wait began */
};

/* Looking at processes and at shared memory takes time: how much of it is still allowed. */
struct looks {
        unsigned threads, marks; /* of processes; of parameters, in shared memory */
};

#define WAIT_TEXT 512u

/* All that the job waits for now, at most `max`. */
unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max);
/* This wait is the reason why `nodes`, a wait for other nodes, lasts. */
void wait_take_purpose(struct job_wait *wait, const struct job_wait *nodes);
/* Names what the job waits for, as in "waiting for …", if that is no member; else "". */
void wait_text(const struct job *job, const struct job_wait *wait, char text[WAIT_TEXT]);
/* The engine's process on this node, if it does not answer. */
unsigned helper_waits(const struct job *job, struct job_wait *waits, unsigned max);
/* Memory that is not ready yet. */
unsigned memory_waits(struct job *job, struct job_wait *waits, unsigned max);
/* Members, or nodes, without which the operation cannot be carried out. */
unsigned operation_waits(struct job *job, struct job_wait *waits, unsigned max);
/* Members, or nodes, without which the plan is not agreed, or the step not complete. */
unsigned plan_waits(struct plan *plan, struct job_wait *waits, unsigned max);
/* Members here for which another node waits, except those that members here wait for, too. */
unsigned wanted_waits(struct job *job, const struct want *want, struct job_wait *waits, unsigned max);
/* Another node waits for that. Whether this is new. */
bool job_want(struct job *job, const struct want *want);
/* The parameter that a wait for a step is about; "" where it is not known, or not found among the first
 * looks->marks of its bucket, from which those are taken that were looked at. */
const char *plan_wait_parameter(const struct job_wait *wait, struct looks *looks);
/* How long the member was blocked, and how long it was watched, in nanoseconds. Its library has written these
 * numbers, and can write anything. False if they are not known. */
bool plan_read_times(const struct plan *plan, uint32_t local, uint64_t times[2]);
