/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a connection from options and environment, and replaces one that was lost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wire/context.h"
#include "gradsync/gradsync.h"

/* One call of gradsync_open(), which may try the sockets of several devices. */
struct connect_attempt {
        /* Time at which the call gives up, as clock_ns(). */
        uint64_t deadline;
        /* The sockets on which no daemon listens, for the error that names them all. */
        char tried[CONTEXT_TRIED];
        /* A daemon has the last socket that was tried, and did not answer in time. */
        bool silent;
};

/* Adds a socket, and the reason why it is of no use. */
void connect_note_tried(struct connect_attempt *attempt, const char *path, const char *why);
/* Connects, exchanges HELLO and WELCOME. On success the link is ready, or the handle stands alone. */
int connect_daemon(struct gradsync *gs, const struct gradsync_options *options,
                   struct connect_attempt *attempt);
/* The callbacks for link_reconnects(). */
void reconnect_lost(void *owner);
void reconnect_retry(void *owner);
