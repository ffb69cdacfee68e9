/* SPDX-License-Identifier: Apache-2.0 */
/* Colours. Without a terminal everything is plain text. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

enum paint { PAINT_NONE, PAINT_BOLD, PAINT_DIM, PAINT_GOOD, PAINT_WARN, PAINT_BAD };

/* The escape sequence that starts a colour and the one that ends it; "" if `color` is false. */
const char *paint_on(bool color, enum paint paint);
const char *paint_off(bool color, enum paint paint);

/* fprintf in a colour. */
void paint_printf(FILE *to, bool color, enum paint paint, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* A whole line: only what stands between the indentation and the newline is coloured. */
void paint_line(FILE *to, const char *indent, bool color, enum paint paint, const char *format, ...)
        __attribute__((format(printf, 5, 6)));

/* Good, bad or worth a look: for the state of a job or a member. */
enum paint paint_state(const char *state);
