/* SPDX-License-Identifier: Apache-2.0 */
/* Looking again and again, page by page: for `status --watch` and `top`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Calls look(data) every `interval_ms` until it returns something other than 0, `count` times if that is not
 * 0, or until SIGINT or SIGTERM, which is a success. Signals arrive only between the calls, so a page is
 * never cut. Returns an exit code. */
int watch_repeat(unsigned long interval_ms, unsigned long count, int (*look)(void *data), void *data);

/* A page that is written to `to` first and then shown in one write, so that nothing flickers and no reader
 * sees half of it. */
struct watch_page {
        FILE *to;
        char *text;
        size_t size;
};

int watch_page_open(struct watch_page *page); /* 0 or -ENOMEM */
/* Shows and frees it. `redraw`: at the top of a cleared terminal, and if `cut`, no more of it than the
 * terminal has lines. Returns an exit code. */
int watch_page_show(struct watch_page *page, bool redraw, bool cut);
