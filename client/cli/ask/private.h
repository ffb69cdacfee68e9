/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private daemons, as far as the file system shows them: directories gradsync-UID.XXXXXX below $TMPDIR, made
 * by `gradsyncctl run`, each with `socket`, `daemon.log` and `daemon.pid`. The last one holds the daemon's
 * pid and is locked (flock) for as long as the `gradsyncctl run` that made it lives. Directories of other
 * users are ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PRIVATE_SOCKET "socket"
#define PRIVATE_PID "daemon.pid"
#define PRIVATE_LOG "daemon.log"

struct private_place {
        char *directory;
        char *socket;
        pid_t daemon; /* 0 unless a process with this pid runs that serves this directory */
        bool owned;   /* the `gradsyncctl run` that made it is alive */
};

struct private_list {
        struct private_place *place;
        size_t n;
};

const char *private_parent(void); /* $TMPDIR, else "/tmp" */

/* Lists all private daemons of the calling user, in the order of their names. 0 or a negative errno; a
 * missing parent directory gives an empty list. */
int private_scan(struct private_list *ret);
void private_list_deinit(struct private_list *list);
