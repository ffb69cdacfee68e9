/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts a stream of bytes into lines, and knows how each of them has ended. Pure. A line ends at "\n" or
 * "\r\n". After a "\r" it may be written anew, as progress bars are: it is given out when that begins.
 * Carriage returns alone make no empty line. A line longer than LINES_MAX is given out in pieces.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LINES_MAX 65536u

enum lines_end {
        LINES_NEWLINE,
        LINES_RETURN, /* another one is written over it */
        LINES_PIECE,  /* the line goes on */
        LINES_REST,   /* the stream has ended */
};

struct lines {
        char *pending; /* LINES_MAX bytes, the start of a line */
        size_t used;
        bool returned;  /* a carriage return has come after it */
        bool rewritten; /* a carriage return has come before it */
};

typedef void (*lines_fn)(void *data, const char *line, size_t length, enum lines_end end);

int lines_init(struct lines *lines); /* 0 or -ENOMEM */
void lines_deinit(struct lines *lines);
void lines_feed(struct lines *lines, const char *bytes, size_t n, lines_fn give, void *data);
/* At the end of the stream: gives out the unfinished line, if there is one. */
void lines_flush(struct lines *lines, lines_fn give, void *data);
/* Whether the pending bytes are the state of a progress bar. */
bool lines_is_bar(const struct lines *lines);
