/* SPDX-License-Identifier: Apache-2.0 */
/* The way from options and environment to a connection. */
#pragma once

#include "gradsync/gradsync.h"

/* Connects, exchanges HELLO and WELCOME. On success the link is ready, or the handle stands alone. */
int connect_daemon(struct gradsync *gs, const struct gradsync_options *options);
