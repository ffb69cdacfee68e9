// SPDX-License-Identifier: Apache-2.0
/* Text from others made safe for terminals: see escape.h. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "proto/names.h"

/* Controls, line and paragraph separators, and what reverses the direction of writing. */
static bool escape_dangerous(uint32_t c) {
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

char *escape_text(const char *text) {
        size_t left = text ? strlen(text) : 0;
        char *out = malloc(left * 4 + 1), *o = out;

        while (out && left > 0) {
                uint32_t point;
                size_t length = utf8_decode(text, left, &point);
                if (length > 0 && !escape_dangerous(point)) {
                        o = mempcpy(o, text, length);
                } else {
                        length = length ? length : 1;
                        for (size_t i = 0; i < length; i++)
                                o += sprintf(o, "\\x%02x", (unsigned char)text[i]);
                }
                text += length;
                left -= length;
        }
        if (out)
                *o = '\0';
        return out;
}
