/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that come back to a job of a former daemon. The first one makes the job, with the places of its
 * last generation; the others take theirs.
 */
#pragma once

#include "job/job.h"
#include "job/restart/takeover.h"

struct job_rejoin {
        struct job_join join; /* the process, and what it had asked for; its rank and slot there are those
                                  that it has */
        struct returned said; /* what it knows; its request and `here` are set when it is taken back */
        uint32_t world;       /* of the generation that it knows */
        struct journal_place place; /* is found by jobs_rejoin() */
        uint64_t stable;            /* its member id */
        bool proven;                /* it has shown that the id is its own */
        uint64_t wait;              /* us */
        bool has_lost;              /* `lost` is a rank that nobody has to wait for */
        uint32_t lost;
};

/* Puts the member back into its place; it tells the rest (takeover.h) as *ret. 0, a code with *refusal, or a
 * negative errno. */
int jobs_rejoin(struct jobs *jobs, struct job_rejoin *rejoin, struct member **ret, struct refusal *refusal);

/* Refuses newcomers whose time to wait is over, and evicts members that have not told everything in time. */
void rejoin_check(struct job *job, uint64_t now);
