/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the log of a private daemon, and picks what a person at the terminal should read: whatever is a
 * notice or more urgent, such as a stall, a loss, or a value that is not finite. The daemon writes the file;
 * inotify says when it has.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "client/cli/run/lines.h"

struct notices {
        int inotify; /* to be read once it is readable; -1: nothing is followed */
        int fd;
        struct lines lines;
};

#define NOTICES_INIT                                                                                         \
        { .inotify = -1, .fd = -1 }

struct notice {
        const char *text; /* without time, name and context */
        int level;        /* how urgent it is (LOG_NOTICE, …); -1: it is none of the daemon's */
        pid_t pid;        /* the process that it is about; 0: none */
};

typedef void (*notices_fn)(void *data, const struct notice *notice);

/* Follows the file from `from` on. 0 or a negative errno. */
int notices_open(struct notices *notices, const char *path, off_t from);
/* Gives all that is new. */
void notices_read(struct notices *notices, notices_fn give, void *data);
void notices_close(struct notices *notices);

/* What a line of the log says; the text is a part of it, and ends where the context began. Pure. */
struct notice notices_parse(char *line);
