// SPDX-License-Identifier: Apache-2.0
/* Rows with progress bars: see bars.h. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <wchar.h>

#include "client/cli/run/bars.h"
#include "proto/names.h"

#define ESCAPE '\033'
#define BELL '\a'

static const char bars_plain[] = "\033[0m";

/* A control sequence ends with a byte from '@' to '~', after its parameters. Returns its length, also if it
 * is cut off. */
static size_t bars_skip_control(const char *text, size_t length, bool *ret_colour) {
        bool numbers = true;
        size_t i = 2;

        for (; i < length && text[i] >= ' ' && text[i] < '@'; i++)
                numbers &= text[i] >= '0' && text[i] <= ';'; /* digits, ':' and ';' */
        *ret_colour = numbers && i < length && text[i] == 'm';
        return i < length ? i + 1 : length;
}

/* A text for the terminal itself, such as a title: it ends with a bell, or with ESC and a backslash. */
static size_t bars_skip_string(const char *text, size_t length) {
        for (size_t i = 2; i < length; i++) {
                if (text[i] == BELL)
                        return i + 1;
                if (text[i] == ESCAPE)
                        return i + 2 < length ? i + 2 : length;
        }
        return length;
}

/* Returns the length of an escape sequence of any kind. */
static size_t bars_skip_escape(const char *text, size_t length, bool *ret_colour) {
        *ret_colour = false;
        if (length < 2)
                return length;
        if (text[1] == '[')
                return bars_skip_control(text, length, ret_colour);
        return text[1] && strchr("]PX^_", text[1]) ? bars_skip_string(text, length) : 2;
}

/* One character that is no escape: its length in the text; *ret_shown is what stands for it, NULL for
 * nothing. */
static size_t bars_take(const char *text, size_t length, const char **ret_shown, size_t *ret_bytes,
                        unsigned *ret_width) {
        uint32_t point;
        size_t n = utf8_decode(text, length, &point);
        int width = n > 0 ? wcwidth((wchar_t)point) : 1;

        *ret_shown = text;
        *ret_bytes = n;
        *ret_width = width < 0 ? 1 : (unsigned)width;
        if (n > 0 && point < ' ') {
                *ret_shown = point == '\t' ? " " : NULL;
                *ret_bytes = *ret_width = point == '\t';
        } else if (n == 0 || text_is_deceptive(point)) {
                *ret_shown = "?";
                *ret_bytes = *ret_width = 1;
        }
        return n > 0 ? n : 1;
}

size_t bars_row(const char *text, size_t length, unsigned columns, char *out, size_t size) {
        size_t used = 0, room = size - sizeof bars_plain;
        bool coloured = false, seen = false;

        while (length > 0) {
                const char *shown = text;
                unsigned width = 0;
                size_t bytes, n;
                bool colour = false;

                if (*text == ESCAPE) {
                        n = bars_skip_escape(text, length, &colour);
                        bytes = colour ? n : 0;
                } else {
                        n = bars_take(text, length, &shown, &bytes, &width);
                }
                if (width > columns || used + bytes > room)
                        break;
                if (bytes > 0)
                        memcpy(out + used, shown, bytes);
                used += bytes;
                columns -= width;
                coloured |= colour;
                seen |= width > 0 && *shown != ' ';
                text += n;
                length -= n;
        }
        if (!seen)
                return 0;
        if (coloured) {
                memcpy(out + used, bars_plain, sizeof bars_plain - 1);
                used += sizeof bars_plain - 1;
        }
        return used;
}
