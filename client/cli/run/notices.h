/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the log of a private daemon, and picks the lines that a person at the terminal should read: notices
 * and anything more urgent, such as a stall, a loss, or a value that is not finite. inotify reports when the
 * daemon has written to the file.
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
        int level;        /* LOG_NOTICE or another one; -1: it is no line of the daemon */
        pid_t pid;        /* the process that the notice is about; 0: none */
};

typedef void (*notices_fn)(void *data, const struct notice *notice);

/* Follows the file from `from` on. 0 or a negative errno. */
int notices_open(struct notices *notices, const char *path, off_t from);
/* Gives all new notices. */
void notices_read(struct notices *notices, notices_fn give, void *data);
void notices_close(struct notices *notices);

/* Parses a line of the log. The text is a part of the line, and ends where the context begins. Pure. */
struct notice notices_parse(char *line);
