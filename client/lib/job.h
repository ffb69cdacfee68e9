/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_job: this process's membership of a job, the parameters registered for its next plan, its plans, and the
 * collective call that is under way.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/lib/context.h"
#include "client/lib/memory.h"
#include "client/lib/params.h"
#include "proto/frame.h"

struct loss {                           /* of a member: why a job or a step is over */
        bool known;
        uint32_t rank;
        int32_t pid;
        char text[LIMIT_TEXT + 1];
};

struct stall {
        bool pending;
        uint64_t step, since_ms;
        uint32_t rank, bucket;
        int32_t pid;
        char process_state[32], parameter[LIMIT_NAME + 1], text[LIMIT_TEXT + 1];
};

enum collective_phase {
        COLLECTIVE_IDLE,
        COLLECTIVE_STAGING,             /* asks for the staging memory */
        COLLECTIVE_TOUCH,               /* has mapped it, and faults its pages in */
        COLLECTIVE_MAPPED,              /* says so */
        COLLECTIVE_CHUNKS,
};

struct collective {                     /* one call, which may take many operations */
        enum collective_phase phase;
        unsigned kind, dtype, reduce;
        uint32_t root;
        const void *in;
        void *out;
        uint64_t bytes;                 /* of one member's part, see Wire__Operation */
        uint64_t at, chunk;             /* bytes done, and bytes in the operation that is under way; chunk 0: none */
        struct request request;
};

struct gradsync_job {
        struct gradsync *gs;
        struct gradsync_job *next;
        char name[LIMIT_NAME + 1];
        bool joined;                    /* the daemon has said so */
        bool taken;                     /* and the caller has it */
        bool busy;                      /* a thread is in join, plan, plan_free, leave or a collective of this job */
        struct request request;         /* join, leave */
        uint64_t deadline;              /* of the join */
        uint64_t timeout_ms;            /* of each plan; 0: none */
        /* from JOINED */
        uint32_t handle, generation, rank, local_rank, world;
        uint64_t member;
        struct loss lost;               /* known from a void step, or from the notice: */
        bool over;                      /* the notice has come: no outcome comes after it */
        struct params params;           /* registered for the next plan */
        uint32_t next_plan;
        struct gradsync_plan *plans;    /* agreed ones */
        struct gradsync_plan *planning; /* the one that is being made, or agreed but not yet taken by the caller */
        struct memory staging;
        bool staging_agreed;            /* the daemon knows that it is touched */
        uint64_t sequence;
        struct collective collective;
        struct stall stall;
        bool telling;                   /* the stall callback runs, in this thread: */
        pthread_t teller;
};

/* Enters the handle of a job for a call that belongs to it alone: STATE if another thread is in one, MEMBER_LOST,
 * DAEMON_LOST. */
int job_enter(struct gradsync_job *job, const char *call);
int job_leave(struct gradsync_job *job, int r);
/* GRADSYNC_OK, or why nothing can be done with this job any more. */
int job_check(const struct gradsync_job *job);

struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle);
/* A step is void because a member was lost; other steps may still be committed. */
void job_note_loss(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* The notice of the loss: open steps that have no outcome by now are void. */
void job_lose(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* Takes it off its handle and frees it, its plans and its memory. */
void job_free(struct gradsync_job *job);
/* In a forked child: only memory, nothing that is shared. */
void job_forget(struct gradsync_job *job);

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text);
