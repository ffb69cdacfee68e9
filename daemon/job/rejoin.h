/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that come back to a job of a former daemon. The first one makes the job, with the places of its
 * last generation; the others take theirs.
 */
#pragma once

#include "job/job.h"
#include "job/restart/takeover.h"

struct job_rejoin {
        struct job_join join; /* who it is, and what it had asked for; its rank and slot there are those
                                  that it has */
        struct returned said; /* what it knows; its request and `here` are set when it is taken back */
        uint32_t world;       /* of the generation that it knows */
        uint64_t stable;      /* its member id */
        uint64_t wait;        /* us */
        bool has_lost;        /* nobody waits any longer for this rank: */
        uint32_t lost;
};

/* The member is back in its place, and *ret is what it tells the rest for. 0, a code with *refusal, or a
 * negative errno. */
int jobs_rejoin(struct jobs *jobs, const struct job_rejoin *rejoin, struct member **ret,
                struct refusal *refusal);

/* Refuses newcomers that have waited for long enough, and evicts members that do not tell in time. */
void rejoin_check(struct job *job, uint64_t now);
