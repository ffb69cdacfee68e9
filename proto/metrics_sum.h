/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What metrics say of all jobs together, without naming one: how many there are in each state, their members,
 * and what they have counted. Counters of jobs that have ended can stay in it, so that it never falls. Pure.
 */
#pragma once

#include "proto/frame.h"
#include "proto/metrics.h"

struct metrics_sum { /* zero-initialised */
        uint64_t jobs[METRICS_STATES];
        uint64_t world, members, spares;
        /* The rest are counters; see StatusJob. */
        uint64_t committed, void_steps, nonfinite_steps, step_us, reduce_us, wait_us, bytes_reduced;
        uint64_t operations, recovery_us, communicators;
        bool has_communicators;
        uint64_t reduce_class[LIMIT_CLASSES], recovery_class[LIMIT_RECOVERY_CLASSES], rebuilds[LIMIT_CAUSES];
};

/* What the job has counted; that is all there is of one that has ended. */
void metrics_sum_count(struct metrics_sum *sum, const Wire__StatusJob *job);
/* A job that is there: what it has counted, its state and its members. */
void metrics_sum_add(struct metrics_sum *sum, const struct metrics_job *job);
/* The families that have a sum, in the place of those of single jobs. */
void metrics_sum_write(const struct metrics_out *to, const struct metrics_sum *sum);
