// SPDX-License-Identifier: Apache-2.0
/* Colours and tables: see paint.h. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "escape.h"
#include "paint.h"

static const char *const sequences[] = {
        [PAINT_NONE] = "",         [PAINT_BOLD] = "\033[1m",  [PAINT_DIM] = "\033[2m",
        [PAINT_GOOD] = "\033[32m", [PAINT_WARN] = "\033[33m", [PAINT_BAD] = "\033[31m",
};

const char *paint_on(bool color, enum paint paint) {
        return color ? sequences[paint] : "";
}

const char *paint_off(bool color, enum paint paint) {
        return color && paint != PAINT_NONE ? "\033[0m" : "";
}

enum paint paint_state(const char *state) {
        static const struct {
                const char *state;
                enum paint paint;
        } states[] = {
                { "running", PAINT_GOOD }, { "computing", PAINT_GOOD }, { "waiting", PAINT_GOOD },
                { "forming", PAINT_WARN }, { "joining", PAINT_WARN },   { "planning", PAINT_WARN },
                { "spare", PAINT_GOOD },
                { "paused", PAINT_WARN },    { "stalled", PAINT_WARN }, { "replacing", PAINT_WARN },
                { "late", PAINT_WARN },      { "stopped", PAINT_BAD },
                { "lost", PAINT_BAD },
        };

        for (size_t i = 0; state && i < array_size(states); i++)
                if (strcmp(states[i].state, state) == 0)
                        return states[i].paint;
        return PAINT_NONE;
}

struct libscols_table *table_new(const struct column *columns, size_t n, bool color) {
        struct libscols_table *table = scols_new_table();

        if (!table)
                return NULL;
        scols_table_enable_colors(table, color);
        scols_table_set_termforce(table,
                                  SCOLS_TERMFORCE_NEVER); /* never cut a name: it may be wanted whole */
        scols_table_enable_minout(table, 1);
        scols_table_enable_noencoding(table, 1); /* table_text() has made it safe */
        scols_table_set_column_separator(table, "  ");
        for (size_t i = 0; i < n; i++)
                scols_table_new_column(table, columns[i].title, 0, columns[i].right ? SCOLS_FL_RIGHT : 0);
        return table;
}

struct libscols_line *table_line(struct libscols_table *table) {
        return table ? scols_table_new_line(table, NULL) : NULL;
}

void table_text(struct libscols_line *line, size_t *cell, const char *text, enum paint paint) {
        _cleanup_(freep) char *shown = escape_text(text);
        struct libscols_cell *target = line ? scols_line_get_cell(line, (*cell)++) : NULL;

        if (!target || !shown)
                return;
        scols_cell_set_data(target, *shown ? shown : "-");
        if (paint != PAINT_NONE)
                scols_cell_set_color(target, sequences[paint]);
}

void table_printf(struct libscols_line *line, size_t *cell, const char *format, ...) {
        _cleanup_(freep) char *text = NULL;
        va_list args;

        va_start(args, format);
        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        va_end(args);
        table_text(line, cell, text, PAINT_NONE);
}

void table_print(struct libscols_table *table, const char *indent, FILE *to) {
        _cleanup_(freep) char *all = NULL;
        char *rest = NULL, *line;

        if (table && scols_print_table_to_string(table, &all) == 0) {
                rest = all;
                while ((line = strsep(&rest, "\n")))
                        if (*line)
                                fprintf(to, "%s%s\n", indent, line);
        }
        scols_unref_table(table);
}
