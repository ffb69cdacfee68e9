/* SPDX-License-Identifier: Apache-2.0 */
/* Looking again and again: for `status --watch` and `top`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Calls look(data) every `interval_ms` until it returns something else than 0, `count` times if that is
 * not 0, or until SIGINT or SIGTERM, which is a success. Signals arrive only between the calls, so a page
 * is never cut. Returns an exit code. */
int watch(unsigned long interval_ms, unsigned long count, int (*look)(void *data), void *data);

/* One page in one write, so that nothing flickers and nobody reads half of it. `redraw`: at the top of a
 * cleared terminal, and no more of it than the terminal has lines if `cut`. Returns an exit code. */
int watch_page(char *page, bool redraw, bool cut);
