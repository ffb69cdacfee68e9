/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is shown by STATUS as OpenMetrics text: what the daemon's metrics socket and `gradsyncctl metrics`
 * give out, so that both say the same. Pure: rows in, text out. The samples of a family stand together, so
 * whoever writes goes through all jobs once for each family; the tool has them all, the daemon looks at one
 * at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gradsync.pb-c.h"

/* What a family shows of jobs beside totals. */
enum metrics_need { METRICS_TOTALS, METRICS_STATE, METRICS_LATE, METRICS_EXPOSED };

/* A rank that has a process: how late it was, or how long it was blocked. */
struct metrics_rank {
        uint32_t rank;
        uint64_t us;
};

struct metrics_job {
        const Wire__StatusJob *job; /* `state` where that is needed */
        uint64_t n_members, n_spares;
        const struct metrics_rank *rank; /* for METRICS_LATE and METRICS_EXPOSED */
        size_t n_ranks;
};

#define METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* First the daemon, then each family and its jobs, then the end. Jobs are given once for each uid and
 * name; the ranks of one may be given in several calls. */
void metrics_write_daemon(FILE *to, const Wire__StatusDaemon *daemon);
extern const size_t metrics_n_families;
enum metrics_need metrics_needs(size_t family);
void metrics_begin_family(FILE *to, size_t family);
void metrics_write_job(FILE *to, size_t family, const struct metrics_job *job);
void metrics_write_end(FILE *to);

/* Upper bounds in seconds of the classes that StatusJob.reduce_class counts; "+Inf" is the last one. */
extern const char *const metrics_classes[];
extern const size_t metrics_n_classes;
/* … and those that StatusJob.recovery_class counts. */
extern const char *const metrics_recovery_classes[];
extern const size_t metrics_n_recovery_classes;
