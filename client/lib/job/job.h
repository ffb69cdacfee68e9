/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_job: this process's membership of a job. Its plans, its registered memory and its
 * collectives belong to the folders above. This file has the pointers to them, the gate of all calls, and the
 * waits for the daemon's decisions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/callers.h"
#include "client/lib/job/stall.h"
#include "client/lib/job/standing.h"
#include "client/lib/job/wish.h"
#include "client/lib/wire/context.h"

/* Phases of the return to a daemon that follows another one: see member/rejoin.h. */
enum rejoin_phase {
        /* The daemon has the job, or no daemon has. */
        REJOIN_NONE,
        /* REJOIN has to be sent. */
        REJOIN_ASK,
        /* REJOINED has to come. */
        REJOIN_ASKED,
        /* Plans and staging memory have to be sent. */
        REJOIN_TELL,
        /* RESUMED, NEWGEN or LOST comes next. */
        REJOIN_TOLD,
        /* Refused, and over: LEAVE has to be sent. */
        REJOIN_QUIT,
};

struct rejoin {
        enum rejoin_phase phase;
        bool staging_told;
        struct request request;
        /* The next plan to offer. */
        struct gradsync_plan *plan;
};

struct gradsync_job {
        struct gradsync *gs;
        struct gradsync_job *next;
        char name[LIMIT_NAME + 1];
        struct wish wish;
        /* gradsync_join() has returned the job to its caller. */
        bool taken;
        /* The call that a thread is in, if only one may be; else NULL. */
        const char *call;
        struct callers callers;
        /* The request of join and leave. */
        struct request request;
        /* Time at which the join stops waiting for an answer, as clock_ns(). */
        uint64_t deadline;
        /* A daemon went before it had answered the join. */
        bool asked;
        /* The number by which the daemon knows the job. 0: it does not. */
        uint32_t handle;
        uint64_t member;
        /* By which the next daemon knows this member: no bytes, or LIMIT_SECRET. */
        size_t secret_bytes;
        uint8_t secret[LIMIT_SECRET];
        struct standing standing;
        struct rejoin rejoin;
        struct stall stall;
        /* Memories that are registered. */
        struct gradsync_memory *memories;
        /* The memory that is being registered; NULL if none. */
        struct gradsync_memory *registering;
        struct plans *plans;
        struct collective *collective;
        struct sync *sync;
};

/* Enters the handle for a call of which a job has one at a time: STATE if another thread is in one. */
int job_enter_alone(struct gradsync_job *job, const char *call);
/* The same, for a call that needs the job: also MEMBER_LOST, DAEMON_LOST. */
int job_enter(struct gradsync_job *job, const char *call);
/* The same, for a call that all members make. */
int job_enter_together(struct gradsync_job *job, const char *call);
int job_leave(struct gradsync_job *job, int r);
/* GRADSYNC_OK, or why nothing can be done with this job any more. */
int job_check(const struct gradsync_job *job);
/* The same, in a call that all members make: if one of them has left, the text names the call. */
int job_check_together(const struct gradsync_job *job);
/* Whether the member can do nothing else while the call waits. */
bool job_waits_alone(const struct gradsync_job *job);

/* Whether a daemon has this member, or is to have it again. */
bool job_is_joined(const struct gradsync_job *job);
/* Finds a job by the number that the daemon gave it. NULL if there is none, or if it is not this daemon's any
 * more. */
struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle);

/* Notes that the generation is at its end; whether another one follows is not known yet. */
void job_interrupt(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* While the generation is at its end, waits for what follows. Returns the result of the connection if that
 * has failed. */
int job_wait_generation(struct gradsync_job *job);
/* Waits until the daemon has the job again. OK, or why nothing can be done with it. */
int job_wait_daemon(struct gradsync_job *job);
/* Returns the result of a call that ended with its generation: VOID_RETRY, or VOID_BEHIND if state has to be
 * synchronised. */
int job_void_code(const struct gradsync_job *job);
