/* SPDX-License-Identifier: Apache-2.0 */
/* struct member: a membership with all that belongs to it, in one piece of memory. */
#pragma once

#include "client/lib/collective/collective.h"
#include "client/lib/collective/sync.h"
#include "client/lib/job/job.h"
#include "client/lib/plan/plan.h"

struct member {
        /* The pointers of the job point to the fields below. */
        struct gradsync_job job;
        struct plans plans;
        struct collective collective;
        struct sync sync;
};

/* Puts a new one on the list of its handle. NULL: no memory. */
struct gradsync_job *member_new(struct gradsync *gs, const struct wish *wish);
/* Takes the job off its handle and frees it, its plans and its memory. */
void member_free(struct gradsync_job *job);
/* Closes the descriptors of its memory; see link_abandon(). */
void member_abandon(struct gradsync_job *job);
/* In a forked child: forgets the job's mappings, which are not there, so that freeing it unmaps nothing. */
void member_forget(struct gradsync_job *job);
