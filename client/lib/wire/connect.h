/* SPDX-License-Identifier: Apache-2.0 */
/* The way from options and environment to a connection, and to another one in place of one that was lost. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wire/context.h"
#include "gradsync/gradsync.h"

/* Of one call of gradsync_open(), which may try the sockets of several devices. */
struct connect_attempt {
        /* clock_ns(). */
        uint64_t deadline;
        /* The sockets on which no daemon listens, for the error that names them all. */
        char tried[CONTEXT_TRIED];
        /* A daemon has the last one, and does not answer in time. */
        bool silent;
};

/* Adds a socket, and why it is of no use. */
void connect_note_tried(struct connect_attempt *attempt, const char *path, const char *why);
/* Connects, exchanges HELLO and WELCOME. On success the link is ready, or the handle stands alone. */
int connect_daemon(struct gradsync *gs, const struct gradsync_options *options,
                   struct connect_attempt *attempt);
/* For link_reconnects(). */
void reconnect_lost(void *owner);
void reconnect_retry(void *owner);
