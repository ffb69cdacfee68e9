/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that has some members of a job: ranks 1 and 3 of a world of 5. The other three are members for the
 * job's machine only: a test makes, loses and replaces them, and the job layer has never heard of them.
 * Whether anything can be exchanged with other nodes is answered by the test, too: as the product does, or as
 * if there were an engine.
 */
#pragma once

#include "unit.h"

#include "job/private.h"

#define WORLD 5

static bool carried;              /* as if an engine carried it between nodes */
static uint64_t elsewhere[WORLD]; /* members of other nodes by rank; 0: it is of this one */

void __real_job_place(struct job *job, const struct action *action);
void __wrap_job_place(struct job *job, const struct action *action);
int __real_shared_check(const struct job *job, struct refusal *refusal);
int __wrap_shared_check(const struct job *job, struct refusal *refusal);

/* A machine on several nodes tells each of them of its own members. */
void __wrap_job_place(struct job *job, const struct action *action) {
        if (action->rank >= WORLD || elsewhere[action->rank] == 0)
                __real_job_place(job, action);
}

int __wrap_shared_check(const struct job *job, struct refusal *refusal) {
        return carried ? 0 : __real_shared_check(job, refusal);
}

/* As its place is asked for by another node. */
static inline void join_elsewhere(struct job *job, uint32_t rank, uint64_t grace) {
        struct membership_request request = { .min_world = WORLD,
                                              .max_world = WORLD,
                                              .has_rank = true,
                                              .rank = rank,
                                              .pid = (int32_t)(4000 + rank),
                                              .grace = grace,
                                              .adapts = true };
        struct refusal refusal;

        request.member = elsewhere[rank] = job_next_id(job);
        assert_int_equal(machine_join(job, &request, &(struct tag){ 0 }, &refusal), 0);
        job_settle_later(job);
}

static inline void join_all_elsewhere(struct job *job, uint64_t grace) {
        for (uint32_t rank = 0; rank < WORLD; rank += 2)
                join_elsewhere(job, rank, grace);
}

static inline void all_here(void) {
        carried = false;
        memset(elsewhere, 0, sizeof(elsewhere));
}
