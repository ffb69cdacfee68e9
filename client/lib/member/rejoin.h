/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's way back after a restart of the daemon: it asks for its place, offers plans and staging memory with
 * the memfds that were kept for this, and waits for the generation in which it goes on. Meanwhile no other
 * message about the job is sent.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/job/job.h"

/* The connection is lost: a call that waits for an answer asks again, or waits on until the job goes on. */
void rejoin_lost(struct gradsync_job *job);
/* Sends the messages that are due, as far as the socket has room. */
void rejoin_advance(struct gradsync_job *job);
/* The job goes on, or is over: `operations` have ended in it (0: not known), the last of them with an
 * error if `failed`. */
void rejoin_end(struct gradsync_job *job, uint64_t operations, bool failed);
/* How long the next daemon waits for members that do not come back at once. */
uint64_t rejoin_wait_ms(const struct gradsync *gs);
