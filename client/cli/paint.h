/* SPDX-License-Identifier: Apache-2.0 */
/* Colours, and tables laid out by libsmartcols. Without a terminal everything is plain text. */
#pragma once

#include <libsmartcols.h>
#include <stdbool.h>
#include <stdio.h>

enum paint { PAINT_NONE, PAINT_BOLD, PAINT_DIM, PAINT_GOOD, PAINT_WARN, PAINT_BAD };

/* The escape sequence that starts a colour and the one that ends it; "" if `color` is false. */
const char *paint_on(bool color, enum paint paint);
const char *paint_off(bool color, enum paint paint);

/* Good, bad or worth a look: for the state of a job or a member. */
enum paint paint_state(const char *state);

struct column {
        const char *title;
        bool right;
};

struct libscols_table *table_new(const struct column *columns, size_t n, bool color);
struct libscols_line *table_line(struct libscols_table *table);
/* Each sets the next cell of the line (`*cell` counts). A failure to allocate leaves the cell empty. */
void table_text(struct libscols_line *line, size_t *cell, const char *text, enum paint paint);
void table_printf(struct libscols_line *line, size_t *cell, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
/* Prints with an indentation and frees. */
void table_print(struct libscols_table *table, const char *indent, FILE *to);
