/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about a job for people that are not in its structs and have to be computed. Looking changes nothing.
 * Strings and pointers live until the next call into the job layer.
 */
#pragma once

#include "engine/engine.h"
#include "job/job.h"
#include "job/watch/waits.h"

struct job_view {
        const char *state;
        uint32_t buckets; /* of all agreed plans, */
        uint64_t bytes;   /* and their gradients */
        double step_rate;
        double exposed; /* mean of its members; negative: not known */
        unsigned n_waits;
        struct job_wait wait[LIMIT_LOCAL];
        bool has_engine; /* `engine` is set */
        struct engine_view engine;
};

struct member_view {
        const char *state;   /* "stopped" goes before it, if the member is active */
        bool late;           /* the job waits for it */
        double exposed;      /* share of its time that it was blocked; negative: not known */
        uint64_t exposed_us; /* the sum of that time */
};

void view_job(struct job *job, uint64_t now, struct job_view *ret);
/* The state alone, without looking at all of its members. */
const char *view_state(struct job *job, uint64_t now);
/* Mean share of its time that the member was blocked, over its plans, and the sum of that time; negative: not
 * known. */
double view_exposed(const struct member *member, uint64_t *ret_us);
/* `job` is that of the member's job. */
struct member_view view_member(const struct member *member, const struct job_view *job);
