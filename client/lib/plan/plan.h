/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_plan: parameters laid out in an arena, and the open step over them. plan.c negotiates it with the
 * daemon, step.c keeps the open step, mark.c and finish.c are how the trainer drives it, ready.c tells the daemon of
 * buckets that are ready.
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
#include "client/lib/plan/step.h"
#include "proto/diagnosis.h"

enum plan_phase {
        PLAN_DESCRIBE, /* sends its description */
        PLAN_ARENA,    /* waits for the arena */
        PLAN_MAP,      /* has it; maps and touches it */
        PLAN_MAPPED,   /* says so, and waits for all to agree */
        PLAN_AGREED,
};

struct gradsync_plan {
        struct gradsync_job *job;
        struct gradsync_plan *next;
        uint32_t ordinal;
        unsigned reduce;
        bool drop; /* being freed */
        uint64_t
                least; /* number of the next step, if that is higher: others have gone on without this member */
        bool renewed; /* the generation changed while a committed step was not finished */
        bool accumulating;
        struct params params;
        struct layout layout;
        struct shared arena;
        struct diagnosis *page; /* at the start of the arena */
        /* negotiation */
        enum plan_phase phase;
        uint32_t at; /* next parameter, then next bucket to describe */
        bool begun;
        int fd; /* of the arena: until its mapping, or for the daemon that may follow; -1: none */
        uint32_t connection; /* on which it was described */
        uint64_t deadline;
        struct request request;
        /* steps */
        struct step step;
        struct ready ready;
        struct results results[2]; /* of the open step, and of the last finished one: */
        unsigned current;          /* index of the open one's */
        uint64_t agreed_ns, finished_ns, exposed_ns;
        uint32_t waiters; /* threads in finish or wait; since when there are any: */
        uint64_t waiting_ns;
        struct waiter *waiter; /* finish.c: those in gradsync_wait() */
};

/* The plans of a job. */
struct plans {
        struct params params; /* registered for the next plan */
        /* The ordinal of the next plan, and of the ones after it where they do not follow one another. */
        uint32_t next, later[LIMIT_PLANS], n_later, at_later;
        struct gradsync_plan *list; /* agreed ones */
        struct gradsync_plan
                *making; /* the one that is being made, or agreed but not yet taken by the caller */
};

/* Local: its job does not know it any more. */
void plan_free(struct gradsync_plan *plan);

/* Gate of the calls on a plan, and its way out, which passes `r` through. */
int plan_enter(const struct gradsync_plan *plan, const char *call);
int plan_leave(const struct gradsync_plan *plan, int r);
/* Where the parameter's gradient is. */
void *plan_address(const struct gradsync_plan *plan, uint32_t param);
int plan_check_param(const struct gradsync_plan *plan, uint32_t param, const char *call);
