/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the job layer share among themselves. */
#pragma once

#include "job/job.h"

int job_new(struct jobs *jobs, const struct job_join *join, struct job **ret, struct refusal *refusal);
struct job *job_free(struct job *job);
int job_add(struct job *job, const struct job_join *join, struct refusal *refusal);
/* Ends it for all members (SUPERSEDED, SHUTDOWN): an open step is void unless it can be committed. */
void job_end(struct job *job, uint32_t cause);

/* The record's list of pids, after it was made and in each new generation. */
void job_record_members(struct job *job);

/* Memory for a member. QUOTA with *refusal if the machine, or the daemon's fds, have no room for it. */
int job_arena_new(struct job *job, uint64_t bytes, struct backend_arena **ret, struct refusal *refusal);

/* Keeps looking at deadlines and stalls while there is a job. */
void jobs_watch(struct jobs *jobs);
/* stall.c: names whom the job waits for, once per stall, and ends what waits for too long. */
void stall_check(struct job *job, uint64_t now);
