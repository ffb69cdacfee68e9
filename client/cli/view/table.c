// SPDX-License-Identifier: Apache-2.0
/* Tables for people: see table.h. */
#include <stdarg.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/view/table.h"
#include "proto/cleanup.h"

struct libscols_table *table_new(const struct column *columns, size_t n, bool color) {
        struct libscols_table *table = scols_new_table();

        if (!table)
                return NULL;
        scols_table_enable_colors(table, color);
        /* A name is never cut: it may be wanted whole. */
        scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
        scols_table_enable_minout(table, 1);
        /* table_text() has made each text safe. */
        scols_table_enable_noencoding(table, 1);
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
                scols_cell_set_color(target, paint_on(true, paint));
}

void table_printf(struct libscols_line *line, size_t *cell, const char *format, ...) {
        va_list args;

        va_start(args, format);
        _cleanup_(freep) char *text = format_new_list(format, args);
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
