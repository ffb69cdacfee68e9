/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/metrics_sum.h"

#include <string.h>

#include "proto/cleanup.h"

/* A row of another release may have more or fewer classes. */
static void metrics_sum_list(uint64_t *to, size_t size, const uint64_t *from, size_t n) {
        for (size_t i = 0; i < n; i++)
                to[i < size ? i : size - 1] += from[i];
}

void metrics_sum_count(struct metrics_sum *sum, const Wire__StatusJob *job) {
        sum->job.committed += job->committed;
        sum->job.void_steps += job->void_steps;
        sum->job.nonfinite_steps += job->nonfinite_steps;
        sum->job.step_us += job->step_us;
        sum->job.reduce_us += job->reduce_us;
        sum->job.wait_us += job->wait_us;
        sum->job.bytes_reduced += job->bytes_reduced;
        sum->job.operations += job->operations;
        sum->job.recovery_us += job->recovery_us;
        sum->job.communicators += job->communicators;
        sum->job.has_communicators |= job->has_communicators;
        metrics_sum_list(sum->reduce_class, LIMIT_CLASSES, job->reduce_class, job->n_reduce_class);
        metrics_sum_list(sum->recovery_class, LIMIT_RECOVERY_CLASSES, job->recovery_class,
                         job->n_recovery_class);
        metrics_sum_list(sum->rebuilds, LIMIT_CAUSES, job->rebuilds, job->n_rebuilds);
}

void metrics_sum_add(struct metrics_sum *sum, const struct metrics_job *job) {
        for (size_t i = 0; i < METRICS_STATES && job->job->state != NULL; i++)
                sum->jobs[i] += strcmp(job->job->state, metrics_states[i]) == 0;
        sum->job.world += job->job->world;
        sum->members += job->n_members;
        sum->spares += job->n_spares;
        metrics_sum_count(sum, job->job);
}

/* The sum in the shape of a job. */
void metrics_sum_write(const struct metrics_out *to, const struct metrics_sum *sum) {
        Wire__StatusJob row = sum->job;
        struct metrics_job all = {
                .together = true, .job = &row, .n_members = sum->members, .n_spares = sum->spares
        };

        row.reduce_class = (uint64_t *)(uintptr_t)sum->reduce_class;
        row.n_reduce_class = array_size(sum->reduce_class);
        row.recovery_class = (uint64_t *)(uintptr_t)sum->recovery_class;
        row.n_recovery_class = array_size(sum->recovery_class);
        row.rebuilds = (uint64_t *)(uintptr_t)sum->rebuilds;
        row.n_rebuilds = array_size(sum->rebuilds);
        for (size_t family = 0; family < metrics_n_families; family++)
                if (metrics_has_sum(family)) {
                        metrics_begin_family(to, family);
                        metrics_write_job(to, family, &all);
                }
}
