/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: one that a service manager passed, or an own one at a path. A stale socket file is
 * replaced, a live daemon's never.
 */
#pragma once

#include "socket/conn.h"

struct listener;

struct listener_config {
        int fd;          /* passed one, or -1; taken over */
        const char *key; /* the setting that names the path */
        const char *path;
        const char *group; /* "" or NULL: leave */
        mode_t mode;
};

/* Binds and listens at the path, replacing a stale socket file; `type` is SOCK_SEQPACKET or SOCK_STREAM.
 * The socket file is then the caller's to remove. */
int listener_bind(const struct listener_config *config, int type, int *ret, char *error, size_t size);

/* What a socket_group that does not exist is answered with. */
void listener_say_no_group(const char *group, char *error, size_t size);

/* On failure a sentence for people is in `error`. */
int listener_new(struct loop *loop, struct conns *conns, const struct listener_config *config,
                 struct listener **ret, char *error, size_t size);
struct listener *listener_free(struct listener *listener); /* removes a socket file of its own */
