/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a job's part on this daemon is in the cluster: its generation, its members' ranks, and the tracks of
 * its plans. Members keep it for the daemon that follows, which cannot learn that from them otherwise. For a
 * job of one daemon it says what they know without it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/frame.h"
#include "rendezvous/machine/message.h"

struct job;

#define TICKET_NO_PLAN UINT32_MAX

struct ticket_plan {
        uint32_t plan, track; /* TICKET_NO_PLAN: the plan of that track has been freed */
        uint64_t before;      /* units of the track that were committed before the plan's first step */
};

struct ticket {
        struct generation generation;
        uint32_t edition; /* of several in one generation the highest is the latest */
        uint32_t n_ranks, n_tracks;
        uint32_t rank[LIMIT_LOCAL]; /* of all members of the job on that daemon, ascending */
        struct ticket_plan track[LIMIT_PLANS];
        uint64_t operations; /* how many have ended well, over all generations */
};

void ticket_of(const struct job *job, struct ticket *ret);
/* Of a job of one daemon. */
void ticket_alone(struct ticket *ticket, uint32_t generation, uint32_t world);
/* INVALID if no daemon can have given it to the member with this rank of `world`. */
int ticket_check(const struct ticket *ticket, const char *job, uint32_t rank, uint32_t world,
                 struct refusal *refusal);
/* How many tracks a node needs to speak of all that are named. */
uint32_t ticket_tracks(const struct ticket *ticket);
/* Whether it says something newer than the other one. */
bool ticket_is_newer(const struct ticket *ticket, const struct ticket *other);
/* Of the same members. */
bool ticket_agrees(const struct ticket *a, const struct ticket *b);
/* NULL: it has no track. */
const struct ticket_plan *ticket_find(const struct ticket *ticket, uint32_t plan);
