// SPDX-License-Identifier: Apache-2.0
/* The daemon's notices: see notices.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <syslog.h>

#include "client/cli/run/notices.h"
#include "proto/cleanup.h"

#define NAME "gradsyncd "
#define LINE_MOST 8192u /* of a line of the log; the daemon writes no longer ones */

int notices_open(struct notices *notices, const char *path, off_t from) {
        int r = lines_init(&notices->lines);

        if (r < 0)
                return r;
        notices->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (notices->fd < 0 || lseek(notices->fd, from, SEEK_SET) < 0)
                return -errno;
        notices->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (notices->inotify < 0)
                return -errno;
        if (inotify_add_watch(notices->inotify, path, IN_MODIFY) < 0) {
                r = -errno;
                notices->inotify = fd_close(notices->inotify);
                return r;
        }
        return 0;
}

void notices_close(struct notices *notices) {
        notices->inotify = fd_close(notices->inotify);
        notices->fd = fd_close(notices->fd);
        lines_deinit(&notices->lines);
}

/* "2026-11-28 03:12:33.123 gradsyncd warning: …" */
static const char *notices_parse_stamp(const char *line, int *ret_level) {
        static const char *const levels[] = { "emerg",   "alert",  "crit", "err",
                                              "warning", "notice", "info", "debug" };
        static const char form[] = "0000-00-00 00:00:00.000 ";
        size_t i = 0;

        while (form[i] && (form[i] == '0' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i]))
                i++;
        if (form[i] || strncmp(line + i, NAME, strlen(NAME)) != 0)
                return line;
        const char *word = line + i + strlen(NAME);
        for (size_t level = 0; level < array_size(levels); level++) {
                size_t length = strlen(levels[level]);

                if (strncmp(word, levels[level], length) == 0 && strncmp(word + length, ": ", 2) == 0) {
                        *ret_level = (int)level;
                        return word + length + 2;
                }
        }
        return line;
}

/* Cuts off " [job=… rank=…]", which repeats the facts of the sentence for searches in the log. Returns it; ""
 * if there is none. */
static const char *notices_cut_context(char *text) {
        static const char *const words[] = { "job=", "generation=", "rank=",   "pid=",
                                             "uid=", "step=",       "bucket=", "parameter=" };
        size_t length = strlen(text);

        if (length == 0 || text[length - 1] != ']')
                return "";
        for (char *at = text + length - 1; at > text; at--) {
                if (at[0] != '[' || at[-1] != ' ')
                        continue;
                for (size_t i = 0; i < array_size(words); i++)
                        if (strncmp(at + 1, words[i], strlen(words[i])) == 0)
                                at[-1] = '\0';
                if (at[-1] == '\0')
                        return at;
        }
        return "";
}

struct notice notices_parse(char *line) {
        struct notice notice = { .text = line, .level = -1 };

        if (line[0] == '<' && line[1] >= '0' && line[1] <= '7' && line[2] == '>') {
                notice.level = line[1] - '0';
                notice.text = line + 3;
        } else {
                notice.text = notices_parse_stamp(line, &notice.level);
        }
        const char *pid = strstr(notices_cut_context(line), " pid=");
        if (pid)
                notice.pid = atoi(pid + strlen(" pid="));
        return notice;
}

struct notices_to {
        notices_fn give;
        void *data;
};

static void notices_take_line(void *data, const char *line, size_t length, enum lines_end end) {
        const struct notices_to *to = data;
        char copy[LINE_MOST];

        if (length >= sizeof copy)
                return;
        memcpy(copy, line, length);
        copy[length] = '\0';
        struct notice notice = notices_parse(copy);
        if (notice.level >= 0 && notice.level <= LOG_NOTICE)
                to->give(to->data, &notice);
}

void notices_read(struct notices *notices, notices_fn give, void *data) {
        struct notices_to to = { give, data };
        char bytes[4096];
        ssize_t n;

        if (notices->inotify < 0)
                return;
        /* Lines that are written after this are read below, or cause another event. */
        while (read(notices->inotify, bytes, sizeof bytes) > 0)
                continue;
        while ((n = read(notices->fd, bytes, sizeof bytes)) > 0)
                lines_feed(&notices->lines, bytes, (size_t)n, notices_take_line, &to);
}
