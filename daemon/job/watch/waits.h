/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "job/watch/plan_waits.h"

struct job;

/* Everybody whom the job waits for now, at most `max`. */
unsigned job_waits(struct job *job, struct job_wait *waits, unsigned max);
unsigned operation_waits(struct job *job, struct job_wait *waits, unsigned max);
