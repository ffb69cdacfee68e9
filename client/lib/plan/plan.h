/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_plan: parameters laid out in an arena, and the open step over them. plan.c negotiates it with the daemon,
 * step.c runs its steps, mark.c and finish.c are how the trainer drives them, results.c keeps what they brought.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/job.h"
#include "client/lib/plan/layout.h"
#include "client/lib/memory/shared.h"
#include "client/lib/plan/results.h"
#include "proto/diagnosis.h"

enum plan_phase {
        PLAN_DESCRIBE,                  /* sends its description */
        PLAN_ARENA,                     /* waits for the arena */
        PLAN_MAP,                       /* has it; maps and touches it */
        PLAN_MAPPED,                    /* says so, and waits for all to agree */
        PLAN_AGREED,
};

enum mark { MARK_NONE = 0, MARK_READY, MARK_ABSENT };

struct step {                           /* the open one */
        uint64_t number;
        unsigned outcome;               /* WIRE__OUTCOME__… */
        uint32_t generation;            /* if that is COMMITTED, in which it was */
        struct loss loss;               /* if that is VOID */
        uint8_t *mark;                  /* enum mark, per parameter */
        uint32_t *missing;              /* per bucket: parameters that are neither ready nor absent */
        uint32_t *absent;               /* per bucket: absent ones */
        uint8_t *done;                  /* per bucket: its result is here */
        bool touched;                   /* some parameter was marked */
        uint32_t marked;                /* parameters that are ready or absent */
        uint32_t cursor;                /* the next bucket to launch */
        uint32_t divisor;               /* 0: the world size */
        uint64_t blocked_ns;            /* in finish and wait */
};

struct gradsync_plan {
        struct gradsync_job *job;
        struct gradsync_plan *next;
        uint32_t ordinal;
        unsigned reduce;
        bool drop;                      /* being freed */
        uint64_t least;                 /* number of the next step, if that is higher: others have gone on without this member */
        bool renewed;                   /* the generation changed while a committed step was not finished */
        bool accumulating;
        struct params params;
        struct layout layout;
        struct shared arena;
        struct diagnosis *page;         /* at the start of the arena */
        /* negotiation */
        enum plan_phase phase;
        uint32_t at;                    /* next parameter, then next bucket to describe */
        bool begun;
        int fd;                         /* of the arena: until its mapping, or for the daemon that may follow; -1: none */
        uint32_t connection;            /* on which it was described */
        uint64_t deadline;
        struct request request;
        /* steps */
        struct step step;
        struct results results[2];      /* of the open step, and of the last finished one: */
        unsigned current;               /* index of the open one's */
        uint8_t *absent_map;            /* scratch of the launch */
        uint64_t agreed_ns, finished_ns, exposed_ns;
        uint32_t waiters;               /* threads in finish or wait; since when there are any: */
        uint64_t waiting_ns;
        struct waiter *waiter;          /* finish.c: those in gradsync_wait() */
};

void plan_free(struct gradsync_plan *plan);     /* local; its job does not know it any more */
void plan_forget(struct gradsync_plan *plan);   /* in a forked child: only memory */

/* Gate of the calls on a plan, and its way out, which passes `r` through. */
int plan_enter(const struct gradsync_plan *plan, const char *call);
int plan_leave(const struct gradsync_plan *plan, int r);
/* Where the parameter's gradient is. */
void *plan_address(const struct gradsync_plan *plan, uint32_t param);
int plan_check_param(const struct gradsync_plan *plan, uint32_t param, const char *call);

/* describe.c: sends what is left of the description. OK once the last frame is out, or an early refusal has come. */
int describe_plan(struct gradsync_plan *plan);
/* The next frame of it, but for the last; *ret_last: there is none before that. OK, AGAIN, or the link has failed. */
int describe_next(struct gradsync_plan *plan, uint32_t request, bool *ret_last);

/* step.c */
int step_init(struct gradsync_plan *plan);
void step_deinit(struct gradsync_plan *plan);
void step_begin(struct gradsync_plan *plan, uint64_t number);
bool step_open(const struct gradsync_plan *plan);       /* something was marked, and finish() has not returned */
/* Hands over every bucket whose turn it is, as far as the socket has room. OK, or the link has failed. */
int ready_send(struct gradsync_plan *plan);
int step_message(struct gradsync_plan *plan, const Wire__Step *message);
void step_void(struct gradsync_plan *plan, uint32_t rank, int32_t pid, const char *text);
/* The job is in a new generation: what was begun in the old one is void, and the next finish() says so. */
void step_regenerate(struct gradsync_plan *plan);
/* After a restart of the daemon. All READYs are sent again; */
void step_resume(struct gradsync_plan *plan);
/* or the others have committed this step, and this member has not got its results. */
void step_skip(struct gradsync_plan *plan, uint64_t number);
/* The state that all members have now is to be taken as one without this step, which was committed: it is void here. */
void step_forget(struct gradsync_plan *plan);
/* Number of the step that follows the open one. */
uint64_t step_next(const struct gradsync_plan *plan, bool committed);
/* Whether the job has lost a member, but this step was begun before and ends by its own outcome, which the notice of the
 * loss follows. */
bool step_outcome_due(const struct gradsync_plan *plan);
/* job_check(), but OK while the outcome is due. */
int step_check_job(const struct gradsync_plan *plan);

/* standalone.c: the reduction of a world of one. */
void standalone_reduce(struct gradsync_plan *plan, uint32_t bucket);
