/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of jobs, a job, a member, and the calls that come back up to the layers above: structs that all
 * folders of the job layer share. It has no functions: job.h has those that act on a job as a whole.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "base/account.h"
#include "base/hist.h"
#include "base/list.h"
#include "base/loop.h"
#include "job/keep/archive.h"
#include "job/keep/journal.h"
#include "job/keep/record.h"
#include "job/keep/recovery.h"
#include "job/machine/comm.h"
#include "job/machine/machine.h"
#include "job/op/operation.h"
#include "job/plan/holding.h"
#include "job/plan/memory.h"
#include "job/plan/nonfinite.h"
#include "job/plan/parameters.h"
#include "job/plan/tasks.h"
#include "job/token.h"
#include "rendezvous/machine/membership.h"

struct job;
struct job_event;
struct jobs;
struct jobs_observer;
struct member;
struct takeover;

enum member_state {
        MEMBER_JOINING,
        MEMBER_ACTIVE,
        MEMBER_LEFT,
        MEMBER_LOST,
};

/* The member's place in the generation that is just beginning. */
struct next_place {
        bool told;
        uint32_t local, rank, slot;
        uint64_t stable;
};

struct member {
        struct list link; /* job->members */
        struct charge self;
        struct list owner_link; /* the session's list; unlinked once the member is gone */
        struct job *job;
        enum member_state state;
        uint64_t id;          /* of this process's membership */
        uint64_t stable;      /* once formed: the id of its place, which a successor inherits */
        struct sha256 secret; /* that it shows to the daemon that follows this one; all 0: it has none yet */
        pid_t pid;
        uint64_t client; /* id of the client, for status */
        char program[64];
        uint32_t local;      /* index in the job's arrays, once formed: job->local[local] */
        uint32_t rank;       /* for people and for the client; while joining, the one it asks for */
        uint32_t local_rank; /* the slot on its host, as its client knows it: no index here */
        bool has_rank;
        uint32_t max_world; /* the largest world it wants; all with a place want the same */
        bool spare;         /* waits for a place where there is none */
        struct next_place next;
        bool returns;      /* its client comes back to the daemon that follows this one */
        uint32_t spurned;  /* the refused request, if what it brought back was refused; else 0 */
        bool evicted;      /* by an operator */
        uint32_t waits_in; /* generation in which its step or operation cannot end; 0: none */
        uid_t evictor;     /* the operator's uid, if so */
        bool evict_told;   /* the log has the eviction */
        bool overdue;      /* evicted because the step deadline has passed */
        char *fault;       /* why its session is ended, in words; NULL: it has gone by itself */
        uint32_t cause;    /* WIRE__CAUSE__… with which it is gone; 0: it is not */
        uint32_t join_request;
        uint64_t joined;    /* clock_now() */
        uint64_t noticed;   /* clock_now() at which its session began to end; 0: it has not */
        uint32_t plans;     /* parts it holds */
        uint32_t next_plan; /* ordinal; of the plans before it, it has only those that it holds */
        uint64_t last_step; /* last committed step it took part in */
        void *owner;        /* the session; NULL once the member is gone */
        struct staging staging;
        struct memory *memories; /* registered ones */
        uint32_t last_memory;    /* handle of the last one */
        struct operation_part operation;
};

/* Why a step, an operation or a join does not begin, or go on, just now. */
enum gate {
        GATE_OPEN,
        GATE_GENERATION, /* the machine holds still: the generation is about to change */
        GATE_PAUSED,     /* an operator has paused the job */
        GATE_HELD,       /* an operator holds back all jobs; what had begun before goes on */
        GATE_LEFT,       /* the step is left to the next daemon as it is */
        GATE_STOPPING,   /* the daemon stops */
};

/* A wait of another node, as that node last reported it. */
struct want {
        unsigned what;         /* enum wait_kind: STEP, PLAN or OPERATION */
        uint32_t plan, bucket; /* UINT32_MAX: for all of them */
        uint64_t step;         /* its number, or the operation's */
        uint64_t since;        /* clock_now() here when the wait began, */
        uint64_t heard;        /* and when it was said */
        uint32_t generation;   /* 0: there is no wait */
        bool told;             /* the members here have been told */
};

#define JOB_WANTS 4u

/* When this node is to show its part in the job to the coordinator's daemon, and its waits to the other
 * nodes. */
struct showing {
        uint64_t rows, waits;
};

/* A circle of members that wait for each other: `sign` says which one, and `since` when it last changed; 0:
 * there is none. `looked` is the time of the last search, `begun` that of this generation's first one. */
struct deadlock {
        uint64_t sign, since, looked, begun;
        uint32_t generation;
};

/* Facts about the end of a job, for the text that the daemon keeps afterwards: see archived.c. */
struct job_clues {
        uint64_t broken;  /* clock_now(): there is no further generation; 0: there may be */
        enum job_end end; /* for this reason */
        bool kept;        /* lost places were kept until then */
        bool few;         /* the wait for successors ended early, since too few members were left */
        uint64_t grace;   /* no process took the lost place within so long; 0: the job ended earlier */
        struct membership_loss last; /* of a forming job: the member that went last */
        /* Why the last process was refused while the job forms; "" if a member went after that. */
        char refused[224];
};

/* A request for a place. The coordinator of a job of this host answers it at once. */
struct asking {
        uint64_t member;
        struct refusal *refusal;
        bool refused;
};

enum job_state {
        JOB_FORMING,
        JOB_RUNNING,
        JOB_REPLACING, /* lost a member; waits for its successor, or for the grace to end */
        JOB_LOST,      /* a member was lost or has left: the survivors can only leave */
};

/* How a job goes over to the next daemon when this one ends; it only grows. From OPEN on this daemon decides
 * nothing more about the job, and a member that goes is no loss. */
enum handover {
        HANDOVER_NONE,
        HANDOVER_VOID, /* open steps become void here, and members call pending operations again there */
        HANDOVER_OPEN, /* as if this daemon had been killed while steps and operations are open */
        HANDOVER_DONE, /* nothing is open, except steps that had not begun (GATE_LEFT) */
};

struct job {
        struct list link;
        struct jobs *table;
        uint32_t id;
        char *name; /* in the same allocation, after the struct */
        uid_t uid;
        struct token token; /* the first member's, as a digest */
        bool open;          /* found by name: further members may come */
        enum job_state state;
        bool cluster; /* its members may be on several daemons */
        uint64_t incarnation;
        struct machine machine;
        struct asking *asking; /* a process asks for a place in this call; NULL: none does */
        uint32_t generation;   /* 0: it has not formed yet */
        struct sha256 secret;  /* of the generation: see struct order */
        uint32_t world;        /* its members on all nodes: the divisor of averages */
        uint32_t max_world;    /* how many there may be */
        struct membership_loss
                loss; /* the first one of this generation, or of the one before; all 0: it has grown */
        bool torn;    /* members, here or on another node, hear that something that they had begun is void */
        uint32_t resumed_from; /* this generation goes on with the units begun in that one; 0: with none */
        /* Unreported void steps: with the next generation members retry them, or hear that they are void. */
        uint32_t untold;
        struct list members;   /* in order of arrival */
        uint32_t n_local;      /* its members on this node, once formed */
        struct member **local; /* those members by rank: a "local index" counts them. The machine's memory */
        struct list plans;
        struct list exchanges; /* of plans that are gone, until the engine has let go of them */
        struct comm comm;
        struct operation operation;
        struct record *record;    /* since the first plan was agreed */
        struct journal_job *kept; /* its part of the journal, once it has formed; NULL: none */
        bool lost_with_daemon;    /* the journal has no room for it */
        struct nonfinite blame;
        struct recovery recovery;
        struct charge charge; /* one job */
        struct charge self;   /* the struct and its name, and communicators; the machine has its own */
        struct charge fds;    /* of communicators */
        char loss_text[896];  /* with the words after it, it fits a message */
        char loss_place[80];  /* " with host1" or " on host b", of a member of another node; "": not known */
        struct job_clues clues;
        bool loss_told;
        bool stall_told;             /* that it waits for members to join, or for memory */
        struct want want[JOB_WANTS]; /* the latest one is the first */
        struct showing showing;
        struct deadlock deadlock;
        struct takeover *takeover; /* it comes from a former daemon, and has not gone on yet; else NULL */
        bool history;              /* steps were committed in it, perhaps not here */
        enum handover handover;
        bool behind;          /* some member of this generation was not in the one before */
        uint64_t interrupted; /* clock_now() at the last loss; 0: none yet */
        uint64_t paused_at;   /* clock_now() at which an operator has paused it; 0: it is not */
        struct loop_deferred settle;
        /* shown by status */
        struct hist steps; /* durations of committed steps, first READY to commit */
        uint64_t last_step, bytes_reduced, void_steps, operations;
        uint64_t communicators; /* that this node has begun to build */
        double norm;
        uint64_t nonfinite;
};

struct jobs_config {
        struct loop *loop;
        struct hub *hub;               /* with the coordinators of jobs of this daemon alone */
        struct hub *cluster;           /* with those of jobs of the cluster; NULL: there is none */
        uint32_t device;               /* number of the device on its host; ranks go by it */
        uint64_t instance;             /* of the daemon: grows with each start */
        struct backend *backend;       /* of the device: for plans */
        struct backend *staging;       /* for operations outside steps; may be the same */
        struct engine *engine;         /* between nodes; NULL: none */
        struct engine *staging_engine; /* for operations outside steps; NULL: `engine` */
        const char *no_engine;         /* why there is none */
        struct users *accounts;
        void (*on_event)(void *data, const struct job_event *event); /* see event.h */
        const struct jobs_observer *observer;
        void *events_data, *observer_data;
        uint64_t step_deadline, stall_notice, rejoin_grace, staging_bytes;
        uint64_t deadlock_timeout; /* 0: jobs are not ended for that */
        uint64_t piece_bytes;      /* the largest piece of a bucket; 0: EXCHANGE_PIECE */
};

struct jobs {
        struct jobs_config config;
        struct list list;
        struct holdings holdings;
        struct parameters_home parameters;
        void *claimed;          /* spans of registered memory that plans use: memory.c's tree */
        struct records ended;   /* records of jobs that have ended, */
        struct archive archive; /* and how these ended */
        uint32_t next_job;
        uint64_t last_id;     /* given here, in any job */
        struct tasks tasks;   /* of the backend */
        uint64_t last_shared; /* id of a memory, or of a part of a communicator, that an engine has */
        struct loop_timer *tick;
        bool ticking;
        uint32_t unwatched;     /* id of the job with which the next tick begins to look for stalls; 0: any */
        enum gate gate;         /* OPEN; HELD: no new job, member or step; or STOPPING */
        struct effects effects; /* of all jobs' machines */
        bool advancing;         /* they are being carried out */
        struct journal *journal; /* for the next daemon; NULL: none. It is closed with the jobs */
};

/* The context of a log line about a job. The caller may set further fields afterwards. */
#define LOG_CONTEXT_OF(about)                                                                                \
        {                                                                                                    \
                .job = (about)->name, .generation = (about)->generation, .uid = (about)->uid, .rank = -1,    \
                .step = -1, .bucket = -1, .pid = -1                                                          \
        }
