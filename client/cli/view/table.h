/* SPDX-License-Identifier: Apache-2.0 */
/* Tables laid out by libsmartcols. Every text in them is escaped. */
#pragma once

#include <libsmartcols.h>
#include <stdbool.h>
#include <stdio.h>

#include "client/cli/view/paint.h"

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
