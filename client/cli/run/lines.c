// SPDX-License-Identifier: Apache-2.0
/* Bytes into lines: see lines.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/run/lines.h"

int lines_init(struct lines *lines) {
        *lines = (struct lines){ .pending = malloc(LINES_MAX) };
        return lines->pending ? 0 : -ENOMEM;
}

void lines_deinit(struct lines *lines) {
        free(lines->pending);
        *lines = (struct lines){ 0 };
}

static void lines_give_out(struct lines *lines, enum lines_end end, lines_fn give, void *data) {
        size_t used = lines->used;

        lines->used = 0;
        lines->returned = false;
        lines->rewritten = end == LINES_RETURN;
        give(data, lines->pending, used, end);
}

/* A full buffer is given out when another byte comes, not before: its line may end just here. */
static void lines_append(struct lines *lines, const char *bytes, size_t n, lines_fn give, void *data) {
        if (n > 0 && lines->returned)
                lines_give_out(lines, LINES_RETURN, give, data);
        while (n > 0) {
                if (lines->used == LINES_MAX)
                        lines_give_out(lines, LINES_PIECE, give, data);
                size_t part = n < LINES_MAX - lines->used ? n : LINES_MAX - lines->used;
                memcpy(lines->pending + lines->used, bytes, part);
                lines->used += part;
                bytes += part;
                n -= part;
        }
}

static void lines_end_line(struct lines *lines, char by, lines_fn give, void *data) {
        if (by == '\n')
                lines_give_out(lines, LINES_NEWLINE, give, data);
        else if (lines->used > 0)
                lines->returned = true;
        else
                lines->rewritten = true;
}

void lines_feed(struct lines *lines, const char *bytes, size_t n, lines_fn give, void *data) {
        size_t i = 0;

        while (i < n) {
                size_t start = i;
                while (i < n && bytes[i] != '\n' && bytes[i] != '\r')
                        i++;
                lines_append(lines, bytes + start, i - start, give, data);
                if (i < n)
                        lines_end_line(lines, bytes[i++], give, data);
        }
}

void lines_flush(struct lines *lines, lines_fn give, void *data) {
        if (lines->used > 0)
                lines_give_out(lines, LINES_REST, give, data);
        lines->returned = lines->rewritten = false;
}

bool lines_is_bar(const struct lines *lines) {
        return lines->used > 0 && (lines->returned || lines->rewritten);
}
