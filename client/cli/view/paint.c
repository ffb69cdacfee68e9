// SPDX-License-Identifier: Apache-2.0
/* Colours: see paint.h. */
#include <stdarg.h>
#include <string.h>

#include "client/cli/view/paint.h"
#include "proto/cleanup.h"

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
                { "running", PAINT_GOOD },   { "computing", PAINT_GOOD }, { "waiting", PAINT_GOOD },
                { "forming", PAINT_WARN },   { "joining", PAINT_WARN },   { "planning", PAINT_WARN },
                { "spare", PAINT_GOOD },     { "paused", PAINT_WARN },    { "stalled", PAINT_WARN },
                { "replacing", PAINT_WARN }, { "late", PAINT_WARN },      { "stopped", PAINT_BAD },
                { "lost", PAINT_BAD },
        };

        for (size_t i = 0; state && i < array_size(states); i++)
                if (strcmp(states[i].state, state) == 0)
                        return states[i].paint;
        return PAINT_NONE;
}

static void paint_list(FILE *to, bool color, enum paint paint, const char *format, va_list args) {
        fputs(paint_on(color, paint), to);
        vfprintf(to, format, args);
        fputs(paint_off(color, paint), to);
}

void paint_printf(FILE *to, bool color, enum paint paint, const char *format, ...) {
        va_list args;

        va_start(args, format);
        paint_list(to, color, paint, format, args);
        va_end(args);
}

void paint_line(FILE *to, const char *indent, bool color, enum paint paint, const char *format, ...) {
        va_list args;

        fputs(indent, to);
        va_start(args, format);
        paint_list(to, color, paint, format, args);
        va_end(args);
        fputc('\n', to);
}
