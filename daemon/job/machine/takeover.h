/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that a former daemon had formed, on its way back: its members come with what they know of it, and
 * with their arenas. When all are here, or those who are missing count as lost, what they have said becomes
 * the report of the job's node (words.h), the machine judges by it, and the job goes on in its next
 * generation: resumed, if nothing is void and nobody is missing, else as after a loss.
 *
 * What the former daemon has left (state.h) is the trace beside those words. A member that has not heard of a
 * commit gets its results from there, if it had sent all of the step. What is believed of a member concerns
 * its own job.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gradsync.pb-c.h"
#include "job/job.h"
#include "rendezvous/words.h"

struct returned {       /* by rank in the generation before */
        bool here;      /* it has come back; it may be lost again */
        bool forgotten; /* nobody waits for it */
        bool history;   /* it knows of committed steps, so it has a state */
        struct word word;
        struct membership_request request;
        bool operation_failed;
        uint32_t next_plan;
        uint64_t operations;
};

struct takeover {
        uint32_t generation;             /* the last one that somebody has heard of */
        struct membership_request first; /* of the one that came first */
        uint64_t deadline; /* when whoever is missing counts as lost, and whoever has not told all is given up
                            */
        bool ended;        /* somebody knows that this generation was at its end */
        bool restored;     /* the machine has been told all of it, and has judged */
        bool voided;       /* … that some step is void */
        bool resumed;      /* nothing is void, and nobody is missing; known when the next generation begins */
        bool behind;       /* somebody has not the results of a step that is committed */
        bool began;        /* somebody had sent a READY of an open step */
        uint64_t operations;   /* that have ended in the generation before */
        bool operation_failed; /* the last of them did */
        struct charge charge;
        struct returned part[]; /* one for each place */
};

struct job_rejoin {
        struct job_join join; /* who it is, and what it had asked for; its rank and slot there are those that
                                 it has */
        bool asked_rank, asked_slot;
        uint32_t generation, world, next_plan;
        uint64_t stable; /* its member id */
        uint64_t wait;   /* us */
        uint64_t operations;
        bool operation_failed, orderly, resumed, history;
        bool ended, has_lost;
        uint32_t lost;
};

/* The member is back in its place, and *ret is what it tells the rest for. 0, a code with *refusal, or a
 * negative errno. */
int jobs_rejoin(struct jobs *jobs, const struct job_rejoin *rejoin, struct member **ret,
                struct refusal *refusal);
/* The rest: each plan after its description, the staging memory, the end. *fd is -1 once it is taken over.
 * STATE if the member is not on its way back. */
int takeover_plan(struct member *member, const Wire__RejoinPlan *plan, int *fd, struct refusal *refusal);
int takeover_staging(struct member *member, uint64_t bytes, int *fd, struct refusal *refusal);
int takeover_told(struct member *member, struct refusal *refusal);

/* Nobody waits any longer for the holder of this place, if anybody does: false otherwise. */
bool takeover_forget(struct job *job, uint32_t rank);

/* For the job layer. */
/* Somebody is still telling; or all who came have left, and those who may still come must hear of it. */
bool takeover_busy(const struct job *job);
/* The machine waits for what members say. */
bool takeover_is_awaiting(const struct job *job);
/* INVALID or RANK_TAKEN for a newcomer that asks for what it cannot have. */
int takeover_check_join(const struct job *job, const struct membership_request *wish,
                        struct refusal *refusal);
/* Nobody has this rank, though the job has formed. */
bool takeover_is_vacant(const struct job *job, uint32_t rank);
bool takeover_is_back(const struct job *job, uint32_t rank);
/* Tells the machine once nobody else has to be waited for. */
void takeover_advance(struct job *job);
/* What the machine has decided about a step of the former daemon. */
void takeover_committed(struct plan *plan);
void takeover_voided(struct plan *plan);
void takeover_check(struct job *job, uint64_t now);
/* The new generation is decided, and nobody has heard of it yet: tells members what they have missed, and
 * finds out whether anything is void. `before` is the number of former ranks. */
void takeover_resolve(struct job *job, uint32_t before);
struct takeover *takeover_free(struct takeover *takeover);
