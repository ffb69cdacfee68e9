/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members that come back to a job of a former daemon. The first one makes the job, with the members that the
 * journal has; the others take their places in it.
 */
#pragma once

#include "base/sha256.h"
#include "job/job.h"

struct job_rejoin {
        struct job_join join; /* the process; what it had asked for is found in the journal */
        struct sha256 secret; /* by which the journal knows it; all 0: it has none */
        uint32_t generation;  /* the last one of which it has heard */
        uint64_t wait;        /* us */
};

/* Puts the member back into its place; it brings the rest (takeover.h) as *ret. 0, a code with *refusal, or a
 * negative errno. */
int jobs_rejoin(struct jobs *jobs, struct job_rejoin *rejoin, struct member **ret, struct refusal *refusal);

/* Refuses newcomers whose time to wait is over, and evicts members that have not brought everything in time.
 */
void rejoin_check(struct job *job, uint64_t now);
