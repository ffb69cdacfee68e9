/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's way back after a restart of the daemon: asks for its place, offers plans and staging memory with
 * the memfds that were kept for this, and waits for the generation in which it goes on. Meanwhile nothing
 * else is said about the job.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wire/request.h"

struct gradsync_job;
struct gradsync_plan;

enum rejoin_phase {
        REJOIN_NONE,  /* the daemon has the job */
        REJOIN_ASK,   /* REJOIN has to be sent */
        REJOIN_ASKED, /* REJOINED has to come */
        REJOIN_TELL,  /* plans and staging memory have to be sent */
        REJOIN_TOLD,  /* RESUMED, NEWGEN or LOST comes next */
        REJOIN_QUIT,  /* refused, and over: LEAVE has to be sent */
};

struct rejoin {
        enum rejoin_phase phase;
        bool orderly; /* the daemon had said that it ends, so there is nothing that it has not said */
        struct request request;
        struct gradsync_plan *plan; /* the next one to offer */
        bool staging_told;
};

/* The connection is lost: whoever waits for an answer is told, or waits on until the job goes on. */
void rejoin_lost(struct gradsync_job *job);
/* Says what is due, as far as the socket has room. */
void rejoin_advance(struct gradsync_job *job);
/* The job goes on, or is over: `operations` have ended in it (0: not known), the last of them with an error
 * if `failed`. */
void rejoin_end(struct gradsync_job *job, uint64_t operations, bool failed);
/* How long the next daemon waits for members that do not come back at once. */
uint64_t rejoin_wait_ms(const struct gradsync *gs);
/* Waits until the daemon has the job again. OK, or why nothing can be done with it. */
int job_wait_daemon(struct gradsync_job *job);
