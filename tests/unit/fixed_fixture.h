/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the job layer whose members are as many from the start as ever: plans of two buckets. */
#pragma once

#include "jobs_fixture.h"

#include "job/plan/step.h"
#include "job/private.h"

static inline struct job_join join_request(struct fixture *f, const char *name, uint32_t rank, uint32_t world,
                                           uint64_t incarnation) {
        return join_of(f, name,
                       (struct membership_request){ .min_world = world,
                                                    .max_world = world,
                                                    .has_rank = true,
                                                    .rank = rank,
                                                    .incarnation = incarnation });
}

static inline int join_named(struct fixture *f, const char *name, uint32_t rank, uint32_t world,
                             uint64_t incarnation) {
        struct job_join join = join_request(f, name, rank, world, incarnation);

        return jobs_join(f->jobs, &join, &f->refusal);
}

static inline int join(struct fixture *f, uint32_t rank, uint32_t world, uint64_t incarnation) {
        return join_named(f, "j", rank, world, incarnation);
}

static inline void form_named(struct fixture *f, const char *name, uint32_t world) {
        for (uint32_t rank = 0; rank < world; rank++)
                assert_int_equal(join_named(f, name, rank, world, 0), 0);
        pass(f);
        heard[0] = '\0';
}

static inline void form(struct fixture *f, uint32_t world) {
        form_named(f, "j", world);
}

/* Two buckets. The fd is the control memory's. */
static inline int describe(struct fixture *f, uint32_t rank, uint32_t ordinal, const char *name,
                           int *ret_fd) {
        int r = describe_plan(f, f->member[rank], ordinal, 2, name);

        if (r == 0)
                r = plan_commit(f->member[rank], ordinal, 8, &f->refusal);
        *ret_fd = r == 0 ? f->memory.fds[1] : -1;
        return r;
}

/* All that a member has to do for a plan. */
static inline void bring(struct fixture *f, uint32_t rank, uint32_t ordinal, uint32_t request) {
        int fd;

        assert_int_equal(describe(f, rank, ordinal, "b", &fd), 0);
        assert_int_equal(plan_mapped(f->member[rank], ordinal, request, &f->refusal), 0);
}

static inline void agree(struct fixture *f, uint32_t world) {
        for (uint32_t rank = 0; rank < world; rank++)
                bring(f, rank, 0, 9);
        heard[0] = '\0';
}

static inline int ready(struct fixture *f, uint32_t rank, uint64_t step, uint32_t bucket) {
        struct ready message = { 0 };

        message.generation = 1;
        message.step = step;
        message.bucket = bucket;
        return step_ready(f->member[rank], &message, &f->refusal);
}

static inline void all_ready(struct fixture *f, uint32_t world, uint64_t step, uint32_t bucket) {
        for (uint32_t rank = 0; rank < world; rank++)
                assert_int_equal(ready(f, rank, step, bucket), 0);
}
