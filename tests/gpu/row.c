/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes rows. Text that comes from elsewhere (names of cards, messages of libraries) is escaped: a row is
 * valid JSON, in ASCII, whatever is in it.
 */
#include "row.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROW = 16384 };

struct line {
        char text[ROW];
        size_t used;
};

static void line_put(struct line *line, const char *text) {
        size_t length = strlen(text);

        if (length < sizeof line->text - line->used) {
                memcpy(line->text + line->used, text, length);
                line->used += length;
        }
}

/* One string in quotes. Bytes outside ASCII are written as if they were Latin-1: nothing of what is looked at
 * needs more. */
static void line_put_string(struct line *line, const char *text) {
        char escape[8];

        line_put(line, "\"");
        for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
                if (*c == '"' || *c == '\\')
                        snprintf(escape, sizeof escape, "\\%c", *c);
                else if (*c < 0x20 || *c > 0x7e)
                        snprintf(escape, sizeof escape, "\\u%04x", *c);
                else
                        snprintf(escape, sizeof escape, "%c", *c);
                line_put(line, escape);
        }
        line_put(line, "\"");
}

static int line_write(const struct line *line) {
        for (size_t at = 0; at < line->used;) {
                ssize_t n = write(STDOUT_FILENO, line->text + at, line->used - at);

                if (n < 0 && errno != EINTR)
                        return -errno;
                at += n > 0 ? (size_t)n : 0;
        }
        return 0;
}

int row_print(const char *fact, const char *answer, const char *detail, double ms) {
        struct line line = { .used = 0 };
        char number[32];

        line_put(&line, "{\"fact\": ");
        line_put_string(&line, fact);
        line_put(&line, ", \"answer\": ");
        line_put_string(&line, answer);
        line_put(&line, ", \"detail\": ");
        line_put_string(&line, detail);
        snprintf(number, sizeof number, ", \"ms\": %.1f}\n", ms);
        line_put(&line, number);
        return line_write(&line);
}
