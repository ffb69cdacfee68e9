/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket: one that a service manager passed, or an own one at a path. A stale socket file is
 * replaced, that of a live daemon never.
 */
#pragma once

#include "socket/conn.h"

struct listener;

struct listener_config {
        int fd;          /* the socket that was passed, or -1; taken over */
        const char *key; /* the setting that names the path */
        const char *path;
        const char *group; /* group of the socket file; "" or NULL to leave it */
        mode_t mode;
};

/* Binds and listens at the path, and replaces a stale socket file. `type` is SOCK_SEQPACKET or SOCK_STREAM.
 * The caller then owns the socket file and removes it. */
int listener_bind(const struct listener_config *config, int type, int *ret, char *error, size_t size);

/* The format for the name of a socket_group that does not exist, and the way to repair it. */
#define LISTENER_NO_GROUP "socket_group: there is no group '%s'"
#define LISTENER_GROUP_FIX "make it (groupadd --system), or name one that is there"

/* 0 or a negative errno; on failure `error` has a sentence for people. */
int listener_new(struct loop *loop, struct conns *conns, const struct listener_config *config,
                 struct listener **ret, char *error, size_t size);
struct listener *listener_free(struct listener *listener); /* removes its own socket file */
