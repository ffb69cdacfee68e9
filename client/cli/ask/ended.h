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

/* Asks a greeted daemon, and adds the ended jobs of that name that it remembers; NULL: all of them. The text
 * of a failure is in talk->error. */
enum talk_result ended_fetch(struct talk *talk, const char *job, struct ended_jobs *jobs);
void ended_deinit(struct ended_jobs *jobs);

/* Says on stderr how the first job of the list ended, under the name that the user asked for, and where to
 * read more about it. */
void ended_tell(const struct ended_jobs *jobs, const char *asked);
