/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_job: this process's membership of a job. Its plans, its registered memory and its collectives belong
 * to the folders above; here are their places, the gate of all calls, and the waits for what the daemon decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/stall.h"
#include "client/lib/job/standing.h"
#include "client/lib/job/wish.h"
#include "client/lib/wire/context.h"

/* The way back to a daemon that follows another one: see member/rejoin.h. */
enum rejoin_phase {
        REJOIN_NONE,  /* the daemon has the job, or nobody has */
        REJOIN_ASK,   /* REJOIN has to be sent */
        REJOIN_ASKED, /* REJOINED has to come */
        REJOIN_TELL,  /* plans and staging memory have to be sent */
        REJOIN_TOLD,  /* RESUMED, NEWGEN or LOST comes next */
        REJOIN_QUIT,  /* refused, and over: LEAVE has to be sent */
};

struct rejoin {
        enum rejoin_phase phase;
        bool orderly; /* the daemon had said that it ends, so there is nothing that it has not said */
        bool staging_told;
        struct request request;
        struct gradsync_plan *plan; /* the next one to offer */
};

struct gradsync_job {
        struct gradsync *gs;
        struct gradsync_job *next;
        char name[LIMIT_NAME + 1];
        struct wish wish;
        bool taken;             /* the caller has it */
        bool busy;              /* a thread is in a call that only one may be in */
        struct request request; /* join, leave */
        uint64_t deadline;      /* of the join */
        bool asked;             /* a daemon that has gone has not answered it */
        uint32_t handle;        /* by which the daemon knows it; 0: it does not */
        uint64_t member;
        struct standing standing;
        struct rejoin rejoin;
        struct stall stall;
        struct gradsync_memory *memories;    /* registered ones */
        struct gradsync_memory *registering; /* the one that is being registered */
        struct plans *plans;
        struct collective *collective;
        struct sync *sync;
};

/* Enters the handle of a job for a call that belongs to it alone: STATE if another thread is in one. */
int job_enter_alone(struct gradsync_job *job, const char *call);
/* The same, for a call that needs the job: also MEMBER_LOST, DAEMON_LOST. */
int job_enter(struct gradsync_job *job, const char *call);
int job_leave(struct gradsync_job *job, int r);
/* GRADSYNC_OK, or why nothing can be done with this job any more. */
int job_check(const struct gradsync_job *job);

/* A daemon has this member, or is to have it again. */
bool job_is_joined(const struct gradsync_job *job);
/* NULL if there is none, or if it is not this daemon's any more. */
struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle);

/* The generation is at its end; whether another one follows is not known yet. */
void job_interrupt(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* Waits, while the generation is at its end, for what follows. Nothing does if the connection has failed: its result. */
int job_wait_generation(struct gradsync_job *job);
/* Waits until the daemon has the job again. OK, or why nothing can be done with it. */
int job_wait_daemon(struct gradsync_job *job);
/* What a call returns that ended with its generation: VOID_RETRY, or VOID_BEHIND if state has to be synchronised. */
int job_void_code(const struct gradsync_job *job);
