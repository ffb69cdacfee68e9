/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that have ended, as daemons remember them, put together from several daemons' answers: the one that
 * ended last comes first.
 */
#pragma once

#include <stddef.h>

#include "client/cli/ask/talk.h"

struct ended_job {
        Wire__StatusEnded *row;
        char *device; /* of the daemon */
};

struct ended_jobs { /* zero-initialised: empty */
        struct ended_job *job;
        size_t n;
};

/* Asks a greeted daemon, and adds what it remembers of this job; NULL: of all. The text of a failure is in
 * talk->error. */
enum talk_result ended_fetch(struct talk *talk, const char *job, struct ended_jobs *jobs);
void ended_deinit(struct ended_jobs *jobs);

/* Says on stderr how the first of these ended, which is the one that was asked for by that name, and where
 * there is more about it. */
void ended_tell(const struct ended_jobs *jobs, const char *asked);
