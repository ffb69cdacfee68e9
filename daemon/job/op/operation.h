/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations outside steps (barrier, broadcast, allgather, reduce-scatter, allreduce): one at a time per job,
 * in the order of their sequence numbers, over a staging memory that each member gets on first use. Compared
 * across members before any payload moves.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/account.h"
#include "job/op/spread.h"
#include "job/op/staging.h"
#include "job/plan/stalled.h"
#include "job/plan/tasks.h"

struct job;
struct member;

struct operation_request {
        uint64_t sequence;
        unsigned kind, dtype, reduce;
        uint32_t root;
        uint64_t bytes, input, output;
        uint64_t total;  /* bytes of the caller's whole call, of which this is a part */
        uint64_t offset; /* where in the call it begins */
        bool blocking;   /* the member does nothing else before the answer */
        bool sealed;     /* broadcast, allgather: data that was changed between hosts is refused */
};

struct operation_part { /* a member's call */
        bool pending;
        uint32_t request;
        uint32_t deferred; /* request of one that came while the generation was at its end; 0: none */
        uint64_t next;     /* sequence expected from it next */
        struct operation_request call;
};

/* The operation that is being gathered or carried out; embedded in its job. */
struct operation {
        struct operation_request first; /* of the first member that called: what the others are compared
                                           with */
        uint64_t dead;  /* calls below this sequence have failed, also for members that call later */
        uint64_t since; /* clock_now() at the first call */
        struct stalled stalled;
        bool differs; /* its calls are not the same */
        uint32_t n_calls;
        bool failed;             /* the backend refused a task of it, or data did not match its seals */
        struct refusal refusal;  /* why it failed, or why the last one that differed did */
        struct task_owner owner; /* takes the backend's results */
        struct spread spread;
};

/* A member calls. The answer comes through events. 0, or a code with *refusal. */
int operation_call(struct member *member, uint32_t request, const struct operation_request *call,
                   struct refusal *refusal);

/* Describes the call that members have made: "operation 6, broadcast of 264 bytes from rank 0". */
void operation_describe(const struct job *job, char *text, size_t size);
/* Says why a call has come to nothing: MEMBER_LOST if the job has ended; VOID_RETRY after a loss, or, while
 * the job runs, because it is about to grow. */
int operation_refuse_void(const struct job *job, struct refusal *refusal);
/* Decisions of the job's machine about the open operation; see step.h. */
void operation_opened(struct job *job);
void operation_cancel(struct job *job);
void operation_committed(struct job *job);
/* If nothing of it is in a member's memory, and the job may resume, members call it again. */
void operation_voided(struct job *job);
/* After the comparison between nodes. 0, or a negative errno: this node cannot take part. */
int operation_compared(struct job *job, bool same, const struct comm_words *words);
/* A node without members opens the operation that the others may open, and gives nothing. Returns as
 * operation_compared() does. */
int operation_follow(struct job *job);
/* Refuses the calls that have been deferred. */
void operation_refuse_deferred(struct job *job);
/* A new generation: all members count from 0 again. */
void operation_restart(struct job *job);
void operation_deinit(struct job *job);
/* All members here have called, and other nodes take part. */
bool operation_is_under_way(const struct job *job);
/* Carries out an operation that an operator held back, if all members have called. */
void operation_release(struct job *job);
