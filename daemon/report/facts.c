/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a job that its structs have: for its row in STATUS, for metrics, and for sums. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "report/private.h"

static void job_facts_add_totals(Wire__StatusJob *row, const struct record *record) {
        if (record == NULL)
                return; /* there has been no plan yet */
        const struct record_totals *totals = &record->totals;
        SET(*row, committed, totals->committed);
        SET(*row, step_us, totals->step_us);
        SET(*row, nonfinite_steps, totals->nonfinite_steps);
        row->n_reduce_class = array_size(totals->class);
        row->reduce_class = (uint64_t *)(uintptr_t)totals->class;
        SET(*row, reduce_us, totals->reduce_us);
        SET(*row, wait_us, totals->wait_us);
}

static void job_facts_add_nonfinite(Wire__StatusJob *row, const struct nonfinite *nonfinite) {
        if (nonfinite->step == 0 || nonfinite->searched != NULL)
                return; /* nothing to say, or not yet */
        SET(*row, nonfinite_step, nonfinite->step);
        SET(*row, nonfinite_plan, nonfinite->plan);
        SET(*row, nonfinite_bucket, nonfinite->bucket);
        SET(*row, nonfinite_rank, nonfinite->rank);
        SET_IF(*row, nonfinite_pid, nonfinite->pid != 0, (int32_t)nonfinite->pid);
        SET(*row, nonfinite_values, nonfinite->count);
        row->nonfinite_parameter = (char *)(uintptr_t)nonfinite->parameter;
}

static void job_facts_add_recovery(Wire__StatusJob *row, const struct recovery *recovery, uint64_t now) {
        SET(*row, recovery_us, recovery->us);
        row->n_recovery_class = array_size(recovery->class);
        row->recovery_class = (uint64_t *)(uintptr_t)recovery->class;
        row->n_rebuilds = array_size(recovery->rebuilds);
        row->rebuilds = (uint64_t *)(uintptr_t)recovery->rebuilds;
        if (!recovery->any)
                return;
        SET(*row, lost_rank, recovery->rank);
        SET(*row, lost_pid, recovery->pid);
        SET(*row, lost_cause, (Wire__Cause)recovery->cause);
        SET(*row, lost_step, recovery->step);
        SET(*row, lost_generation, recovery->generation);
        SET(*row, lost_us, recovery->noticed);
        SET(*row, lost_ago_ms, now > recovery->noticed ? (now - recovery->noticed) / USEC_PER_MSEC : 0);
        SET(*row, lost_void_steps, recovery->void_steps);
        SET_IF(*row, lost_void_us, recovery->told != 0, recovery->told - recovery->noticed);
        SET_IF(*row, lost_filling_us, recovery->filling != 0, recovery->filling);
        SET_IF(*row, lost_newgen_us, recovery->regenerated != 0, recovery->regenerated - recovery->noticed);
        SET_IF(*row, lost_commit_us, recovery->committed != 0, recovery->committed - recovery->noticed);
        SET_IF(*row, lost_successor, recovery->successor != 0, recovery->successor);
}

void job_facts_add(Wire__StatusJob *row, const struct job *job, uint64_t now) {
        SET(*row, job, job->id);
        row->name = (char *)job->name;
        SET(*row, uid, job->uid);
        SET(*row, generation, job->generation);
        SET(*row, world, job->state == JOB_FORMING ? job->max_world : job->world);
        SET(*row, step, job->last_step);
        SET(*row, bytes_reduced, job->bytes_reduced);
        SET(*row, norm, job->norm);
        SET(*row, nonfinite, job->nonfinite);
        SET(*row, void_steps, job->void_steps);
        SET(*row, incarnation, job->incarnation);
        SET(*row, operations, job->operations);
        SET_IF(*row, communicators, job->cluster, job->communicators);
        job_facts_add_totals(row, job->record);
        job_facts_add_nonfinite(row, &job->blame);
        job_facts_add_recovery(row, &job->recovery, now);
}

uint64_t job_facts_late(const struct member *member) {
        const struct record *record = member->job->record;

        return record != NULL ? record->totals.late_us[member->local] : 0;
}
