/* SPDX-License-Identifier: Apache-2.0 */
/* Looks again and again, and shows pages: for `status --watch` and `top`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/cli/ask/lookout.h"

/* A result of look() besides the exit codes: it has seen nothing, and the turn does not count. */
#define WATCH_NOTHING (-1)

struct watch {
        unsigned long interval_ms;
        unsigned long count; /* 0: until interrupted */
        int (*look)(void *data);
        /* Where these are given, keys of the terminal count. key() takes one, and returns false if it ends
         * the watch; show() shows the page again, without a look. An exit code. */
        bool (*key)(void *data, char key);
        int (*show)(void *data);
        void *data;
};

/* Calls look(data) every `interval_ms` until it returns an exit code other than 0, `count` times if that is
 * not 0, or until a key, SIGINT or SIGTERM ends it, which is a success. Signals and keys arrive only between
 * the calls, so a page is never cut. Returns an exit code. */
int watch_repeat(const struct watch *watch);

/* A page that is written to `to` first and then shown in one write, so that nothing flickers and no reader
 * sees half of it. */
struct watch_page {
        FILE *to;
        char *text;
        size_t size;
};

int watch_page_open(struct watch_page *page); /* 0 or -ENOMEM */
/* Says that something is missing: as a page if `redraw`, else once on stderr. WATCH_NOTHING or an exit code.
 */
int watch_show_missing(const struct lookout *lookout, bool redraw);
/* Shows and frees it. `redraw`: at the top of a cleared terminal, and if `cut`, no more of it than the
 * terminal has lines. Returns an exit code. */
int watch_page_show(struct watch_page *page, bool redraw, bool cut);
