/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the job layer that go on after losses: 2 to 3 members, plans of one bucket, and operations. */
#pragma once

#include "jobs_fixture.h"

#include "job/plan/step.h"
#include "job/private.h"

#define GRACE (3600 * USEC_PER_SEC)

/* 2 to 3 members, who form with 2. */
static inline struct job_join elastic(struct fixture *f) {
        return join_of(f, "j", (struct membership_request){ .min_world = 2, .max_world = 3, .grace = GRACE });
}

static inline void join(struct fixture *f) {
        struct job_join join = elastic(f);

        assert_int_equal(jobs_join(f->jobs, &join, &f->refusal), 0);
        pass(f);
}

static inline void form(struct fixture *f) {
        join(f);
        join(f);
        assert_heard("joined 0;joined 1;");
}

/* One bucket. */
static inline void describe_named(struct fixture *f, struct member *member, uint32_t ordinal,
                                  const char *name) {
        assert_int_equal(describe_plan(f, member, ordinal, 1, name), 0);
}

static inline int commit_named(struct fixture *f, struct member *member, uint32_t ordinal, const char *name) {
        describe_named(f, member, ordinal, name);
        return plan_commit(member, ordinal, 8, &f->refusal);
}

static inline void bring(struct fixture *f, struct member *member, uint32_t ordinal) {
        assert_int_equal(commit_named(f, member, ordinal, "a"), 0);
        assert_int_equal(plan_mapped(member, ordinal, 9, &f->refusal), 0);
}

static inline void agree(struct fixture *f, uint32_t world, uint32_t ordinal) {
        for (uint32_t rank = 0; rank < world; rank++)
                bring(f, f->member[rank], ordinal);
        heard[0] = '\0';
}

static inline int ready(struct fixture *f, uint32_t rank, uint32_t plan, uint64_t step) {
        struct ready message = { 0 };

        message.generation = f->member[rank]->job->generation;
        message.plan = plan;
        message.step = step;
        return step_ready(f->member[rank], &message, &f->refusal);
}

/* The member that came last. */
static inline struct member *newest(struct fixture *f) {
        return list_entry(f->members.prev, struct member, owner_link);
}
