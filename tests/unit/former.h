/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, with all their members on this daemon, and plans that a former daemon has left in the journal. */
#pragma once

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/data.h"
#include "job/job.h"

static char former_path[64]; /* of the latest one */

__attribute__((destructor)) static void former_unlink(void) {
        if (former_path[0] != '\0')
                unlink(former_path);
}

static inline struct journal *former_journal(struct jobs *jobs) {
        char error[512];

        if (jobs->journal != NULL)
                return jobs->journal;
        former_unlink();
        strcpy(former_path, "/tmp/gradsync-former.XXXXXX");
        close(mkstemp(former_path));
        assert_int_equal(journal_open(former_path, &jobs->journal, error, sizeof(error)), 0);
        return jobs->journal;
}

static inline struct sha256 former_secret(uint32_t rank) {
        return (struct sha256){ .byte = { (uint8_t)(rank & 0xff), 1 } };
}

/* In that generation, with plans 0 to n_plans - 1. */
static inline struct journal_generation *former_job(struct jobs *jobs, const struct job_join *join,
                                                    uint32_t number, uint32_t world, uint32_t n_plans) {
        const struct journal_about about = { .incarnation = join->membership.incarnation,
                                             .token = join->token->digest,
                                             .cluster = join->cluster };
        struct journal_job *job = journal_add_job(former_journal(jobs), join->uid, join->name, &about,
                                                  join->membership.max_world);
        struct journal_generation *made = journal_begin_generation(job);

        made->world = made->n_members = world;
        made->since = number;
        for (uint32_t rank = 0; rank < world; rank++)
                made->member[rank] = (struct journal_member){ .id = 1 + rank,
                                                              .secret = former_secret(rank),
                                                              .rank = rank,
                                                              .slot = rank,
                                                              .min_world = join->membership.min_world,
                                                              .max_world = join->membership.max_world,
                                                              .grace = join->membership.grace };
        made->n_tracks = n_plans;
        for (uint32_t i = 0; i < n_plans; i++)
                made->track[i] = (struct journal_track){ .plan = i, .track = TRACK_STEP + i };
        journal_enter(job, (struct generation){ .number = number });
        return made;
}

/* Its members have a state. */
static inline void former_state(struct journal_generation *made) {
        made->steps = 1;
        made->history = (struct tag){ .generation = 1, .step = 1 };
}

static inline struct journal_plan *former_plan(struct jobs *jobs, const struct job_join *join, uint32_t plan,
                                               uint32_t params, uint32_t buckets, uint64_t committed) {
        const struct journal_key key = { .uid = join->uid,
                                         .job = join->name,
                                         .incarnation = join->membership.incarnation,
                                         .token = join->token->digest,
                                         .plan = plan,
                                         .params = params,
                                         .buckets = buckets };
        struct journal_plan *made = journal_add(former_journal(jobs), &key, join->membership.max_world);

        journal_commit(made, committed);
        return made;
}
