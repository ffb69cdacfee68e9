/* SPDX-License-Identifier: Apache-2.0 */
/* The way from options and environment to a connection, and to another one in place of one that was lost. */
#pragma once

#include "gradsync/gradsync.h"

/* Connects, exchanges HELLO and WELCOME. On success the link is ready, or the handle stands alone. */
int connect_daemon(struct gradsync *gs, const struct gradsync_options *options);
/* For link_reconnects(). */
void reconnect_lost(void *owner);
void reconnect_retry(void *owner);
