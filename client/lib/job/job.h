/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync_job: this process's membership of a job, the parameters registered for its next plan, its plans, and the
 * collective call that is under way.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wire/context.h"
#include "client/lib/memory/shared.h"
#include "client/lib/plan/params.h"
#include "client/lib/member/rejoin.h"
#include "client/lib/memory/registered.h"
#include "proto/frame.h"

struct loss {                           /* of a member: why a job or a step is over */
        bool known;
        uint32_t rank;
        int32_t pid;
        char text[LIMIT_TEXT + 1];
};

/* Of a member's state: which generation made it, and the how many-eth commit that was. Generation 0: none. */
struct tag {
        uint64_t generation, commits;
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
        COLLECTIVE_TOUCH,               /* maps it, and faults its pages in */
        COLLECTIVE_MAPPED,              /* says so */
        COLLECTIVE_CHUNKS,
        COLLECTIVE_VOID,                /* failed with its generation; waits for what follows */
};

struct collective {                     /* one call, which may take many operations */
        enum collective_phase phase;
        unsigned kind, dtype, reduce;
        uint32_t root;
        const void *in;
        void *out;
        uint64_t bytes;                 /* of one member's part, see Wire__Operation */
        uint32_t generation, rank, world;       /* in which it was called, and the place in it */
        uint32_t connection;            /* on which the staging memory was asked for */
        uint64_t at, chunk;             /* bytes done, and bytes in the operation that is under way; chunk 0: none */
        struct request request;
};

#define SYNC_HISTORY 1u                 /* it knows that somebody has had a state */
#define SYNC_TORN 2u                    /* its buffers are in part another member's */

struct sync_entry {                     /* what each member says of its state */
        struct tag tag;                 /* generation 0: none */
        uint64_t plans;                 /* digest of how many steps of each plan are in it */
        uint64_t step;                  /* as the trainer counts */
        uint64_t digest;                /* of the number and sizes of its buffers */
        uint64_t bytes;                 /* of all of them */
        uint64_t flags;                 /* SYNC_… */
};

struct sync {                           /* a gradsync_sync_state() that is under way */
        bool gathered;
        uint32_t generation, rank, world;       /* in which that was: what follows belongs to it, too */
        struct sync_entry mine, *all;   /* `all` by rank; NULL: none is under way */
        uint32_t source;
        bool transfer, receive;
        uint32_t at;                    /* the next buffer */
};

struct wish {                           /* what was asked for: options and environment, put together */
        char name[LIMIT_NAME + 1];
        uint32_t min_world, max_world;
        int64_t rank, local_rank, incarnation;
        int64_t instance;               /* processes that this rank has had before; negative: not told */
        bool spare;
        uint64_t timeout_ms;            /* of plans; 0: none */
        uint64_t join_ms;               /* of the join; 0: none */
        uint64_t last_call_ms;
        int64_t rejoin_grace_ms;        /* negative: the daemon's */
        char token[LIMIT_TOKEN + 1];    /* "": none */
};

struct gradsync_job {
        struct gradsync *gs;
        struct gradsync_job *next;
        char name[LIMIT_NAME + 1];
        struct wish wish;
        bool joined;                    /* the daemon has said so */
        bool taken;                     /* and the caller has it */
        bool busy;                      /* a thread is in join, plan, plan_free, leave or a collective of this job */
        struct request request;         /* join, leave */
        uint64_t deadline;              /* of the join */
        bool asked;                     /* a daemon that has gone has not answered it */
        uint64_t timeout_ms;            /* of each plan; 0: none */
        struct rejoin rejoin;
        /* from JOINED */
        uint32_t handle, generation, rank, local_rank, world;
        uint32_t most;                  /* members that the job can have */
        uint64_t member;
        struct loss lost;               /* why the job is over; known from a void step, or from the notice: */
        bool over;                      /* the notice has come: no outcome comes after it */
        struct loss change;             /* why this generation is at its end, or why there is a new one */
        bool changing;                  /* it is at its end; NEWGEN or LOST comes next */
        bool resumed;                   /* it has entered this generation without anything being void */
        bool newcomer;                  /* some member is new in this generation */
        bool behind;                    /* some member has no state yet, or an older one: it has to be synchronised */
        uint32_t told;                  /* the generation that the caller knows of: VOID_… has said so, or sync_state() */
        struct tag tag;                 /* how new this process's state is */
        struct gradsync_memory *memories;       /* registered ones */
        struct gradsync_memory *registering;    /* the one that is being registered */
        struct params params;           /* registered for the next plan */
        uint32_t next_plan;             /* the ordinal of the next one; of those behind it, where they do not follow: */
        uint32_t later_plan[LIMIT_PLANS], n_later, later;
        struct gradsync_plan *plans;    /* agreed ones */
        struct gradsync_plan *planning; /* the one that is being made, or agreed but not yet taken by the caller */
        struct shared staging;
        int staging_fd;                 /* until its mapping, or for the daemon that may follow; -1: none */
        bool staging_agreed;            /* the daemon knows that it is touched */
        uint64_t sequence;
        bool operation_failed;          /* the last one that was counted in it */
        struct collective collective;
        struct sync sync;
        bool history;                   /* some member of this job has had a state */
        bool torn;                      /* a part of one has been received, and the rest has not */
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

/* collective.c: as their public namesakes, for gradsync_sync_state(). The first begins whether or not the caller knows of the
 * generation. The second is void if that is not `generation` any more; on rank `root` it sends `in`, elsewhere `out`
 * receives, or nothing if that is NULL. */
int collective_allgather(struct gradsync_job *job, const void *in, void *out, uint64_t bytes);
int collective_broadcast(struct gradsync_job *job, uint32_t generation, const void *in, void *out, uint64_t bytes, uint32_t root);

/* sync.c: what a gradsync_sync_state() that is under way has gathered goes. */
void sync_end(struct gradsync_job *job);

/* Operations that have ended in this generation, and whether the last of them failed: with one whose answer is here, and which
 * its caller has not come for yet. */
uint64_t collective_operations(const struct gradsync_job *job, bool *ret_failed);

/* generation.c */
/* The generation is at its end; whether another one follows is not known yet. */
void job_interrupt(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
int generation_renew(struct gradsync_job *job, const Wire__Newgen *message);
/* The same, and nothing is void. */
int generation_resume(struct gradsync_job *job, const Wire__Resumed *message);
/* Waits, while the generation is at its end, for what follows. Nothing does if the connection has failed: its result then. */
int job_wait_generation(struct gradsync_job *job);
/* What a call is told that ended with its generation: VOID_RETRY, or VOID_BEHIND if state has to be synchronised. */
int job_void_code(const struct gradsync_job *job);

struct gradsync_job *job_find(struct gradsync *gs, uint32_t handle);
/* A step is void because a member was lost; other steps may still be committed. */
void job_note_loss(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* The notice of the loss: open steps that have no outcome by now are void. */
void generation_lose(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
/* Takes it off its handle and frees it, its plans and its memory. */
void leave_free(struct gradsync_job *job);
/* Closes the descriptors of its memory; see link_abandon(). */
void leave_abandon(struct gradsync_job *job);
/* In a forked child: only memory, nothing that is shared. */
void leave_forget(struct gradsync_job *job);

void loss_set(struct loss *loss, uint32_t rank, int32_t pid, const char *text);
