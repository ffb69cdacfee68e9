/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls from the job layer to the layers above: events of jobs and members, and questions about the members
 * of other nodes. The layers above provide a pointer for each, job_events_data() and job_observer_data(). The
 * functions called may look at jobs and send letters; they change no member, plan or step.
 */
#pragma once

#include "job/data.h"

struct entangled;
struct job_wait;
struct plan;
struct plan_ordinals;

enum job_event_kind {
        JOB_EVENT_JOINED,     /* the member has a place: the answer to its join */
        JOB_EVENT_REFUSED,    /* answers the request; a refused join is the end of the member */
        JOB_EVENT_PLAN_ARENA, /* `memory` is to be mapped for the plan */
        JOB_EVENT_PLAN_AGREED,
        JOB_EVENT_PLAN_DROPPED,  /* the plan with the ordinal `number` */
        JOB_EVENT_STAGING_ARENA, /* `memory` is to be mapped for operations */
        JOB_EVENT_STAGING_READY,
        JOB_EVENT_REGISTERED,   /* the memory with the handle `number` */
        JOB_EVENT_UNREGISTERED, /* likewise */
        JOB_EVENT_OPERATION_DONE,
        JOB_EVENT_RESULT,    /* one bucket of the open step is done for all members */
        JOB_EVENT_COMMITTED, /* plan->step is. The daemon accesses no memory of it any more */
        JOB_EVENT_VOID,      /* the step after plan->step is, because of job->loss. Likewise */
        JOB_EVENT_LOST,      /* the job cannot go on, because of job->loss */
        JOB_EVENT_NEWGEN,    /* the member has a place in the next generation; job->loss is its cause */
        JOB_EVENT_RESUMED,   /* the same, and nothing is void */
        JOB_EVENT_PLAN_STEP, /* plan->step is committed, and the member has no results of it */
        /* A committed step whose outcome the member does not know, from what the former daemon has left: */
        JOB_EVENT_PAST_RESULT, /* each of its buckets, */
        JOB_EVENT_PAST_COMMIT, /* then its commit */
        JOB_EVENT_STALL,
        JOB_EVENT_EXPELLED, /* the member's session has to end, later than this call */
        JOB_EVENT_FLUSH,    /* members are about to change places: results are sent to the present ones now */
        JOB_EVENT_TICK,     /* of a job of the cluster: comes about ten times in a second */
        JOB_EVENT_ENDED,    /* the job is about to be freed */
};

/* Pointers are valid during the call. */
struct job_event {
        enum job_event_kind kind;
        struct job *job;
        struct member *member; /* NULL: it concerns all members */
        struct plan *plan;     /* NULL: it is about no plan, or a dropped one */
        uint32_t request;      /* of the member, if this answers one; else 0 */
        union {
                const struct plan_ordinals *plans; /* JOINED: those that the other members have */
                uint32_t number;                   /* PLAN_DROPPED, REGISTERED, UNREGISTERED */
                uint64_t sequence;                 /* OPERATION_DONE */
                const struct refusal *refusal;     /* REFUSED, EXPELLED */
                struct {
                        const int *fds;
                        unsigned n_fds;
                        uint64_t bytes;
                } memory; /* PLAN_ARENA, STAGING_ARENA */
                struct job_event_result {
                        uint32_t bucket;
                        const struct backend_result *result;
                        const uint8_t *unused; /* a bitmap of the bucket's parameters, or NULL */
                        size_t unused_bytes;
                } result; /* RESULT, PAST_RESULT */
                struct {
                        const struct job_wait *wait;
                        const char *text;
                } stall; /* STALL */
        };
};

/* The members of a job's other nodes, as their daemons show them. */
struct jobs_observer {
        /* A letter of another node, or of the coordinator's daemon. */
        void (*posted)(struct job *job, const struct hub_letter *letter);
        /* Whether it is known how the other nodes were at `after` or later; if not, that is found out. */
        bool (*inquire)(struct job *job, uint64_t after);
        /* The members that the wait (WAIT_NODES) is for; or nodes that say nothing, if no member is known.
         * Their strings live until the next call. */
        unsigned (*blame)(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max);
        /* Whether a member that the wait (WAIT_NODES) is for was blocked in something else lately, after that
         * moment. */
        bool (*entangled)(struct job *job, const struct job_wait *wait, uint64_t after,
                          struct entangled *ret);
        /* The host of a lost member of another node; of one that is not reached, perhaps "a or b". "": not
         * known. */
        void (*host_of)(struct job *job, const struct membership_loss *loss, char *text, size_t size);
        /* A sentence about the members that a forming job still lacks: "" if there is nothing to say. */
        void (*missing)(struct job *job, char *text, size_t size);
};

/* Pass the event up; its job and member are set here. */
void job_tell(struct job *job, struct job_event event);
void member_tell(struct member *member, struct job_event event);
void member_tell_refused(struct member *member, uint32_t request, const struct refusal *refusal);
/* For a mistake that no answer can refuse. */
void member_expel(struct member *member, const struct refusal *why);

static inline void *job_events_data(const struct job *job) {
        return job->table->config.events_data;
}

static inline void *job_observer_data(const struct job *job) {
        return job->table->config.observer_data;
}
