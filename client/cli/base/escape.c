// SPDX-License-Identifier: Apache-2.0
/* Text from others made safe for terminals: see escape.h. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "proto/names.h"

/* Bytes that the first byte of a UTF-8 sequence announces; 1 also where it announces nothing valid. */
static size_t escape_announced(unsigned char first) {
        return first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
}

static uint32_t escape_code_point(const unsigned char *p, size_t length) {
        uint32_t value = length == 1 ? p[0] : p[0] & (0x7fu >> length);

        for (size_t i = 1; i < length; i++)
                value = value << 6 | (p[i] & 0x3fu);
        return value;
}

/* Controls, line and paragraph separators, and what reverses the direction of writing. */
static bool escape_dangerous(uint32_t c) {
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

char *escape_text(const char *text) {
        static const char digits[] = "0123456789abcdef";
        const unsigned char *p = (const unsigned char *)(text ? text : "");
        size_t left = strlen((const char *)p);
        char *out = malloc(left * 4 + 1), *o = out;

        while (out && left > 0) {
                size_t length = escape_announced(*p);
                bool whole = length <= left && utf8_valid((const char *)p, length);

                if (!whole)
                        length = 1;
                if (whole && !escape_dangerous(escape_code_point(p, length))) {
                        memcpy(o, p, length);
                        o += length;
                } else {
                        for (size_t i = 0; i < length; i++) {
                                *o++ = '\\';
                                *o++ = 'x';
                                *o++ = digits[p[i] >> 4];
                                *o++ = digits[p[i] & 15];
                        }
                }
                p += length;
                left -= length;
        }
        if (out)
                *o = '\0';
        return out;
}
