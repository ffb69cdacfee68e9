// SPDX-License-Identifier: Apache-2.0
/* Text from others made safe for terminals: see escape.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/escape.h"
#include "proto/names.h"

char *escape_text(const char *text) {
        size_t left = text ? strlen(text) : 0;
        char *out = malloc(left * 4 + 1), *o = out;

        while (out && left > 0) {
                uint32_t point;
                size_t length = utf8_decode(text, left, &point);
                if (length > 0 && !text_is_deceptive(point)) {
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
