/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that come back to a job of a former daemon. The first one makes the job, with the places of its
 * last generation; the others take theirs.
 */
#pragma once

#include "job/job.h"

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

/* Refuses newcomers that have waited for long enough, and evicts members that do not tell in time. */
void rejoin_check(struct job *job, uint64_t now);
