/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A status snapshot as OpenMetrics text: what the daemon's metrics socket and `gradsyncctl metrics` give out,
 * so that both say the same. Pure: rows of STATUS in, text out.
 */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "gradsync.pb-c.h"

struct metrics_job {
        const Wire__StatusJob *job;
        Wire__StatusMember *const *member;
        size_t n_members;
};

#define METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Of several jobs with one name and uid, the last one is meant: earlier ones are ending, and names must be
 * unique. */
void metrics_write(FILE *to, const Wire__StatusDaemon *daemon, const struct metrics_job *jobs, size_t n_jobs);

/* Upper bounds in seconds of the classes that StatusJob.reduce_class counts; "+Inf" is the last one. */
extern const char *const metrics_classes[];
extern const size_t metrics_n_classes;
/* … and those that StatusJob.recovery_class counts. */
extern const char *const metrics_recovery_classes[];
extern const size_t metrics_n_recovery_classes;
