/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_plan: parameters laid out in an arena, and the open step over them. plan.c negotiates the
 * plan with the daemon, step.c keeps the open step, the trainer drives it through mark.c and finish.c, and
 * ready.c sends READY for each bucket.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/job.h"
#include "client/lib/memory/shared.h"
#include "client/lib/plan/layout.h"
#include "client/lib/plan/params.h"
#include "client/lib/plan/ready.h"
#include "client/lib/plan/results.h"
#include "client/lib/plan/signal.h"
#include "client/lib/plan/step.h"
#include "proto/diagnosis.h"

enum plan_phase {
        /* Sends its description. */
        PLAN_DESCRIBE,
        /* Waits for the arena. */
        PLAN_ARENA,
        /* Maps and touches the arena. */
        PLAN_MAP,
        /* Says that the arena is mapped, and waits for all members to agree. */
        PLAN_MAPPED,
        PLAN_AGREED,
};

struct gradsync_plan {
        struct gradsync_job *job;
        struct gradsync_plan *next;
        uint32_t ordinal;
        unsigned reduce;
        /* The plan is being freed. */
        bool drop;
        /* The least number of the next step: others have gone on without this member. */
        uint64_t least;
        /* The generation changed while a committed step was not finished. */
        bool renewed;
        bool accumulating;
        struct params params;
        struct layout layout;
        /* An address of the GPU, if the daemon serves one. */
        struct shared arena;
        /* For the diagnosis page. */
        struct shared control;
        struct diagnosis *page;
        /* While it is negotiated. */
        enum plan_phase phase;
        /* The negotiation ends with `generation`, the one that the caller knew of at its start. */
        bool void_on_loss;
        uint32_t generation;
        /* Next parameter, then next bucket to describe. */
        uint32_t at;
        bool begun;
        /* Descriptors of the arena and of the control memory, kept until the mapping, or for the daemon that
         * may follow; -1: none. */
        int fd, control_fd;
        /* The connection on which the plan was described. */
        uint32_t connection;
        uint64_t deadline;
        struct request request;
        /* The steps of the plan. */
        struct step step;
        struct ready ready;
        struct signal_plan signal;
        /* Results of the open step, and of the last finished one. */
        struct results results[2];
        /* Index of the open step's. */
        unsigned current;
        uint64_t agreed_ns, finished_ns, exposed_ns;
        /* Threads in finish or wait, and since when there are any. */
        uint32_t waiters;
        uint64_t waiting_ns;
        /* The threads in gradsync_wait(): see finish.c. */
        struct waiter *waiter;
};

/* The plans of a job. */
struct plans {
        /* Parameters that are registered for the next plan. */
        struct params params;
        /* The ordinal of the next plan, and of the plans after it if these are not consecutive. */
        uint32_t next, later[LIMIT_PLANS], n_later, at_later;
        /* Agreed plans. */
        struct gradsync_plan *list;
        /* The one that is being made, or that is agreed but not yet returned to the caller. */
        struct gradsync_plan *making;
};

/* Fills the fields by which a message names a plan. */
#define SET_PLAN(message, named)                                                                             \
        do {                                                                                                 \
                SET(message, job, (named)->job->handle);                                                     \
                SET(message, plan, (named)->ordinal);                                                        \
        } while (0)

/* Frees a plan that its job does not know any more; sends nothing. */
void plan_free(struct gradsync_plan *plan);
/* The job is in a new generation, and the plan is being made. */
void plan_regenerate(struct gradsync_plan *plan);
/* Writes the fds of the plan to `ret`, as many as its layout asks for, and returns their number. */
unsigned plan_list_fds(const struct gradsync_plan *plan, int ret[FRAME_FDS_MAX]);
/* Closes the fds of the plan. */
void plan_close_fds(struct gradsync_plan *plan);

/* The gate of the calls on a plan, and its way out, which passes `r` through. */
int plan_enter(const struct gradsync_plan *plan, const char *call);
/* Notes that the calling thread makes a call on the job: one that all members make, or one about a step. */
void plan_note_caller(struct gradsync_job *job, bool together);
/* Shows the daemon the step, or the agreement, that a call of this member waits for while the member does
 * nothing else; 0: none. The daemon looks for members that wait for each other. See diagnosis.h. */
void plan_say_blocked(const struct gradsync_plan *plan, uint64_t in);
int plan_leave(const struct gradsync_plan *plan, int r);
/* The address of the parameter's gradient. */
void *plan_address(const struct gradsync_plan *plan, uint32_t param);
int plan_check_param(const struct gradsync_plan *plan, uint32_t param, const char *call);
