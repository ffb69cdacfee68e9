/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people see of a job: plain structs, filled at once and read by whoever answers. Looking changes
 * nothing. Strings and pointers live until the next call into the job layer.
 */
#pragma once

#include "job/job.h"
#include "job/watch/waits.h"

struct job_view {
        uint32_t id, generation, world; /* world: while it forms, how many there may be */
        uid_t uid;
        const char *name, *state, *text;
        uint64_t incarnation, step, bytes_reduced, void_steps, operations, nonfinite;
        uint32_t buckets; /* of all agreed plans, */
        uint64_t bytes;   /* and their gradients */
        double step_rate, norm;
        double exposed;                     /* mean of its members; negative: not known */
        const struct record_totals *totals; /* NULL before the first plan */
        const struct nonfinite *blame;      /* NULL: nothing to say, or not yet */
        const struct recovery *recovery;
        unsigned n_waits;
        struct job_wait wait[LIMIT_LOCAL];
};

struct member_view {
        uint32_t rank, local_rank;
        uint64_t id, client, step;
        pid_t pid;
        const char *program;
        const char *state; /* "stopped" goes before it, if the member is active */
        bool active, joining;
        bool late; /* the job waits for it */
        bool has_late_us;
        double exposed; /* negative: not known; then so is: */
        uint64_t exposed_us, late_us;
};

struct plan_view {
        uint32_t ordinal, params, buckets;
        uint64_t step, bytes, arena_bytes;
        unsigned reduce;
        bool open;
};

void view_job(struct job *job, uint64_t now, struct job_view *ret);

typedef void (*view_member_fn)(void *data, const struct member_view *member);
typedef void (*view_plan_fn)(void *data, const struct plan_view *plan);

/* By rank, then those that wait for a place. `view` is that of the same job. */
void view_members(const struct job *job, const struct job_view *view, view_member_fn fn, void *data);
/* Those that are agreed. */
void view_plans(const struct job *job, view_plan_fn fn, void *data);
