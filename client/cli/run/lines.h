/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a stream of bytes into lines. Pure. A line ends at "\n", "\r\n" or "\r" (so that progress bars are
 * seen); a carriage return alone makes no empty line. A line longer than LINES_MAX is given out in pieces.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LINES_MAX 65536u

struct lines {
        char *pending; /* LINES_MAX bytes, the start of a line */
        size_t used;
        bool ended_by_return; /* the last line ended with a carriage return; a newline now belongs to it */
};

typedef void (*lines_fn)(void *data, const char *line, size_t length);

int lines_init(struct lines *lines); /* 0 or -ENOMEM */
void lines_deinit(struct lines *lines);
void lines_feed(struct lines *lines, const char *bytes, size_t n, lines_fn give, void *data);
/* At the end of the stream: gives out the unfinished line, if there is one. */
void lines_flush(struct lines *lines, lines_fn give, void *data);
