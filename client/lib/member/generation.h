/* SPDX-License-Identifier: Apache-2.0 */
/* The step from one generation of a job to the next, or to its end. */
#pragma once

#include "client/lib/job/job.h"

/* The job is in its next generation. */
int generation_renew(struct gradsync_job *job, const Wire__Newgen *message);
/* The job is in its next generation after a restart of a daemon, and nothing is void. */
int generation_resume(struct gradsync_job *job, const Wire__Resumed *message);
/* The job is over: open steps that have no outcome by now are void. */
void generation_lose(struct gradsync_job *job, uint32_t rank, int32_t pid, const char *text);
