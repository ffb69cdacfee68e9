/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of all jobs together, without naming one: the number of jobs in each state, their members, and
 * their counters. Counters of jobs that have ended can stay in the sum, so that it never falls. Pure.
 */
#pragma once

#include "proto/frame.h"
#include "proto/metrics.h"

struct metrics_sum { /* zero-initialised */
        uint64_t jobs[METRICS_STATES];
        uint64_t members, spares;
        Wire__StatusJob job; /* its world and its counters; lists are in: */
        uint64_t reduce_class[LIMIT_CLASSES], recovery_class[LIMIT_RECOVERY_CLASSES], rebuilds[LIMIT_CAUSES];
};

/* Adds the counters of the job; a job that has ended has nothing else. */
void metrics_sum_count(struct metrics_sum *sum, const Wire__StatusJob *job);
/* Adds a job that is there: its counters, its state and its members. */
void metrics_sum_add(struct metrics_sum *sum, const struct metrics_job *job);
/* Writes the families that have a sum, in the place of those of single jobs. */
void metrics_sum_write(const struct metrics_out *to, const struct metrics_sum *sum);
