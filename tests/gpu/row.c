/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes rows. Text that comes from elsewhere (names of cards, messages of libraries) is escaped: a row is
 * valid JSON, in ASCII, whatever is in it.
 */
#include "row.h"

#include <errno.h>
#include <fcntl.h>
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

static int rows_write(int fd, const char *text, size_t length) {
        while (length > 0) {
                ssize_t n = write(fd, text, length);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                text += n;
                length -= (size_t)n;
        }
        return 0;
}

int rows_open(struct rows *rows, const char *path) {
        rows->out = -1;
        rows->user_kernel = false;
        if (path == NULL)
                return 0;
        rows->out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        return rows->out < 0 ? -errno : 0;
}

void rows_close(struct rows *rows) {
        if (rows->out >= 0)
                close(rows->out);
        rows->out = -1;
}

static bool is_failure(const char *answer) {
        static const char *const failures[] = { "no", "error", "hang", "crash" };

        for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
                if (strcmp(answer, failures[i]) == 0)
                        return true;
        return strncmp(answer, "only ", 5) == 0; /* from or to root */
}

int rows_print(struct rows *rows, const char *fact, const char *answer, const char *detail, double ms,
               bool kernel) {
        struct line line = { .used = 0 };
        char marked[4096], number[32];
        int r, r_out = 0;

        if (rows->user_kernel && strcmp(answer, "skipped") != 0 && (kernel || is_failure(answer))) {
                snprintf(marked, sizeof marked,
                         "%s, but a user-space kernel answered, so this decides nothing: %s", answer, detail);
                answer = "undecided";
                detail = marked;
        }
        line_put(&line, "{\"fact\": ");
        line_put_string(&line, fact);
        line_put(&line, ", \"answer\": ");
        line_put_string(&line, answer);
        line_put(&line, ", \"detail\": ");
        line_put_string(&line, detail);
        snprintf(number, sizeof number, ", \"ms\": %.1f}\n", ms);
        line_put(&line, number);
        if (rows->out >= 0) {
                r_out = rows_write(rows->out, line.text, line.used);
                fsync(rows->out);
        }
        r = rows_write(STDOUT_FILENO, line.text, line.used);
        return r < 0 ? r : r_out;
}
