/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS as metrics. The daemon gives them out at its metrics_socket and metrics_listen, and `gradsyncctl
 * metrics` writes them; this code makes both, so that they are equal. The text is in the text format of
 * Prometheus, version 0.0.4: Prometheus scrapes it, node_exporter reads it from files, and promtool checks
 * it. Pure: rows in, text out. The samples of a family stand together, so the caller goes through all jobs
 * once for each family; the tool has all jobs, the daemon looks at one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "gradsync.pb-c.h"

struct metrics_out {
        FILE *file;
        const char *device; /* a label of all samples */
};

/* The data of a job that a family needs besides totals. */
enum metrics_need { METRICS_TOTALS, METRICS_STATE, METRICS_LATE, METRICS_EXPOSED };

/* A rank that has a process: how late it was, or how long it was blocked. */
struct metrics_rank {
        uint32_t rank;
        uint64_t us;
};

struct metrics_job {
        bool together;              /* it stands for all jobs: see metrics_sum.h */
        const Wire__StatusJob *job; /* with `state` for METRICS_STATE */
        uint64_t n_members, n_spares;
        const struct metrics_rank *rank; /* for METRICS_LATE and METRICS_EXPOSED */
        size_t n_ranks;
};

#define METRICS_STATES 7u
extern const char *const metrics_states[METRICS_STATES];

/* The order of calls: the daemon, the number of jobs in each state, then each family with its jobs. Jobs are
 * given once for each uid and name; the ranks of one may be given in several calls. */
void metrics_write_daemon(const struct metrics_out *to, const Wire__StatusDaemon *daemon);
void metrics_write_states(const struct metrics_out *to, const uint64_t *jobs); /* METRICS_STATES */
extern const size_t metrics_n_families;
enum metrics_need metrics_needs(size_t family);
bool metrics_has_sum(size_t family); /* over jobs */
void metrics_begin_family(const struct metrics_out *to, size_t family);
void metrics_write_job(const struct metrics_out *to, size_t family, const struct metrics_job *job);

/* Upper bounds in seconds of the classes that StatusJob.reduce_class counts; "+Inf" is the last one. */
extern const char *const metrics_classes[];
extern const size_t metrics_n_classes;
/* The same for the classes that StatusJob.recovery_class counts. */
extern const char *const metrics_recovery_classes[];
extern const size_t metrics_n_recovery_classes;
