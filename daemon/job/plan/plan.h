/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan of a job: one part per member (its description until all were compared, its arena), the buckets, and
 * the open step. Members meet in a plan by its ordinal. Nothing is reduced before all parts were compared
 * equal and mapped.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/account.h"
#include "base/list.h"
#include "job/data.h"
#include "job/plan/bucket.h"
#include "job/plan/description.h"
#include "job/plan/exchange.h"
#include "job/plan/holding.h"
#include "job/plan/stalled.h"
#include "job/plan/tasks.h"
#include "proto/names.h"

enum plan_part_state {
        PART_NONE,       /* this member has not begun the plan */
        PART_DESCRIBING, /* chunks are coming in */
        PART_ALLOCATING, /* compared; the backend makes the arena */
        PART_COMPLETE,   /* the arena is with the member */
        PART_MAPPING,    /* the member has mapped and touched it; the backend attaches it */
        PART_RETURNING,  /* compared, and brought with its arena, which the backend takes over */
        PART_MAPPED,     /* the backend can use it */
        PART_DROPPED,    /* the member gave it up, or is gone */
};

struct plan_part { /* of one member of this node */
        enum plan_part_state state;
        uint32_t request;           /* to be answered when the backend is done, or all agree; 0: none open */
        uint64_t deadline, timeout; /* of the agreement; UINT64_MAX: none */
        uint64_t mapped;            /* clock_now() when it was */
        struct description *description; /* own one, while describing */
        struct holding *arena;           /* without memory if all buckets lie in registered memory */
        int control;                     /* the fd of the control memory */
        uint64_t control_bytes;          /* of it; 0: there is none yet, see plan_control.h */
        /* per bucket: where it is, without a memory in the arena; NULL: all in the arena, as the reference
         * has them */
        struct backend_range *place;
        struct memory_claim *claims; /* on registered memory */
        uint64_t *ready;             /* per bucket: number of the last step for which READY came */
        uint32_t n_ready;            /* buckets of the open step */
        uint64_t said_step; /* back from a former daemon: the last one whose commit the member has heard */
};

/* A plan that comes back from a former daemon. */
struct plan_former {
        uint32_t plan;  /* ordinal */
        uint32_t track; /* of its steps, as the journal says */
        uint64_t step;  /* the last one whose commit the member has heard */
};

/* Plans of a job, ascending, and its next one. */
struct plan_ordinals {
        uint32_t ordinal[LIMIT_PLANS], n, next;
};

struct plan {
        struct list link;
        struct job *job;
        uint32_t ordinal;
        struct plan_part *part;        /* by local index, like everything here that is one of each member */
        struct description *reference; /* what all members agreed on, except where buckets are */
        uint32_t reference_local;      /* the member that brought it */
        bool agreed, failed, dropped;
        bool void_on_loss;      /* the end of the generation ends it, if it is not agreed by then */
        struct refusal refusal; /* why it failed */
        uint64_t asked;         /* clock_now() at which the coordinator was told that it is late; 0: never */
        struct task_owner owner;
        /* the step */
        uint32_t track; /* of the job's machine, once agreed: it has the state of the step, see plan_unit() */
        uint64_t step;  /* last committed */
        uint64_t opened;           /* clock_now() at the first READY */
        struct record_step *trace; /* record of the open step; NULL: newer ones have pushed it out */
        struct stalled stalled;
        struct journal_plan *kept; /* its place in the journal for the next daemon; NULL: none */
        enum gate gate;   /* of this step alone: OPEN; HELD: it began while all jobs were held; or LEFT */
        uint32_t divisor; /* of the open step; 0: no member has said it yet */
        struct bucket *bucket;
        struct exchange *exchange; /* NULL: its steps have been on one node only */
        uint32_t n_full;           /* buckets that all members are ready in */
        uint32_t n_done;
        uint64_t spared;    /* payload of the buckets so far in which no member has used anything */
        double sum_squares; /* of the results so far */
        uint64_t nonfinite;
        struct charge self;   /* for itself and its parts */
        struct charge charge; /* for buckets and the memory of their steps and records */
};

/* The state of the open step. IDLE also if it is decided, and step.h has yet to be called for that. */
static inline enum unit_state plan_unit(const struct plan *plan) {
        return plan->agreed ? machine_unit(plan->job, plan->track) : UNIT_IDLE;
}
/* Its members have begun it, and may still get its results. */
static inline bool plan_is_open(const struct plan *plan) {
        enum unit_state unit = plan_unit(plan);

        return unit == UNIT_WANTED || unit == UNIT_OPEN || unit == UNIT_COMMITTING;
}

/* The exchange that has the measures of the inputs of all nodes, by rank, to the bucket that is done now;
 * NULL: only the result has measures, those of the members here. */
static inline const struct exchange *plan_heard(const struct plan *plan, uint32_t bucket) {
        const struct exchange *exchange = plan->exchange;
        bool heard = exchange != NULL && !machine_is_alone(plan->job) && plan->job->n_local > 0 &&
                     dtype_is_float(plan->reference->bucket[bucket].dtype);

        return heard ? exchange : NULL;
}

struct plan *plan_find(struct job *job, uint32_t ordinal);
struct plan *plan_on_track(const struct job *job, uint32_t track); /* that is agreed */
/* Where that member has the bucket. */
struct backend_range plan_range(const struct plan *plan, uint32_t local, uint32_t bucket);

/* It goes on when the member does something; else the backend is at work. */
static inline bool part_is_awaited(const struct plan_part *part) {
        return part->state == PART_NONE || part->state == PART_DESCRIBING || part->state == PART_COMPLETE;
}

/* Requests of a member. 0, a code with *refusal, or a negative errno. */
int plan_begin(struct member *member, const struct offer *begin, struct refusal *refusal);
int plan_params(struct member *member, uint32_t ordinal, const struct offer_param *param, size_t n,
                struct refusal *refusal);
int plan_buckets(struct member *member, uint32_t ordinal, const struct offer_bucket *bucket, size_t n,
                 struct refusal *refusal);
/* These three are answered through events, now or later. A difference from the others fails the plan for all
 * of them. */
int plan_commit(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal);
int plan_mapped(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal);
int plan_drop(struct member *member, uint32_t ordinal, uint32_t request, struct refusal *refusal);

/* For the rest of the job layer. */
void part_set_state(struct plan_part *part, enum plan_part_state state); /* its only writer */
/* Ends a description with an arena that the member has from a former daemon; the plan is agreed. fds
 * that are taken over are -1. Only a refusal is answered. */
int plan_return(struct member *member, const struct plan_former *said, uint32_t request, int *fds,
                unsigned n_fds, struct refusal *refusal);
/* Whether some part of that member is on its way back from a former daemon. */
bool plan_is_returning(const struct job *job, uint32_t local);
/* Refuses a request. All that a member brings back counts as one request: it hears only once that it does not
 * come back. */
void plan_refuse(struct member *member, bool returning, uint32_t request, const struct refusal *refusal);
/* On several nodes a plan has memory for what goes between them, at once, or when `late` is called. 0, QUOTA
 * with *refusal, or a negative errno. */
int plan_prepare_exchange(struct plan *plan, holding_done_fn late, struct refusal *refusal);
/* The record's list of pids, after it was made and in each new generation. */
void plan_record_members(struct job *job);
void plan_expire(struct plan *plan, uint64_t now); /* answers whose deadline for the agreement has come */
/* Tells the other nodes about the plan: see ACTION_EXPLAIN. */
void plan_explain(struct job *job, uint32_t ordinal, enum note note, uint32_t index);
/* The coordinator says that no node has it. */
void plan_reject(struct job *job, uint32_t ordinal, const struct refusal *refusal);
void plan_sweep(struct job *job); /* frees plans that have failed, once all members here have heard of it */
void plan_break(struct plan *plan, const struct refusal *refusal); /* the job has lost a member: no
                                                                      agreement any more */
void plan_release(struct plan *plan, uint32_t local);              /* the part of a member that is gone; its
                                                                      tasks have ended */
/* The job is in a new generation: local member m takes the part of the former local member from[m]; it has
 * none if that is negative. `before` is the number of former local members. */
void plan_move(struct plan *plan, uint32_t before, const int64_t *from);
/* Between these two: plans that end with their generation are as if never begun. */
void plan_void(struct job *job);
/* After that, when all members have been told of the generation: agrees on the plan if only members that are
 * gone had not brought it, and frees it if only they had it. */
void plan_resume(struct plan *plan);
/* The plan's key in the journal; the plan has a reference. */
struct journal_key plan_key(const struct plan *plan, const struct description *description);
/* Whether some member has a part of it. */
bool plan_is_held(const struct plan *plan);
/* Its steps have that track, and may begin: all members have agreed, and `steps` are committed on some node.
 * TRACK_OPERATION: not now. */
void plan_take_track(struct plan *plan, uint32_t track, uint64_t steps);
struct plan *plan_free(struct plan *plan);
/* The plans that members of the job still have, here or, `remote`, on other nodes. */
void plan_list(const struct job *job, bool remote, struct plan_ordinals *ret);
