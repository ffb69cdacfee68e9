/* SPDX-License-Identifier: Apache-2.0 */
/* Composes refusals, texts that a client's user will read, and sentences for the administrator. How a refusal
 * is sent is the session's affair. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Removes half a UTF-8 character that a cut has left at the end, because the text is sent as a protobuf
 * string. */
static void refusal_trim(char *text) {
        size_t length = strlen(text), start = length;

        while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
                start--;
        if (start == 0)
                return;

        unsigned char lead = (unsigned char)text[start - 1];
        size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
        if (length - (start - 1) < want)
                text[start - 1] = '\0';
}

static void refusal_fill(struct refusal *refusal, uint32_t code, const char *format, va_list arguments) {
        int length = vsnprintf(refusal->text, sizeof(refusal->text), format, arguments);

        if (length < 0)
                refusal->text[0] = '\0';
        else if ((size_t)length >= sizeof(refusal->text))
                refusal_trim(refusal->text);
        refusal->code = code;
        refusal->has_culprit = false;
        refusal->rank = 0;
        refusal->pid = 0;
        refusal->parameter[0] = '\0';
}

int refuse(struct refusal *refusal, uint32_t code, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        if (refusal)
                refusal_fill(refusal, code, format, arguments);
        va_end(arguments);
        return (int)code;
}

void refuse_parameter(struct refusal *refusal, const char *parameter) {
        if (refusal)
                snprintf(refusal->parameter, sizeof(refusal->parameter), "%s", parameter ? parameter : "");
}

int refuse_for(struct refusal *refusal, uint32_t code, uint32_t rank, int32_t pid, const char *format, ...) {
        va_list arguments;

        if (!refusal)
                return (int)code;
        va_start(arguments, format);
        refusal_fill(refusal, code, format, arguments);
        va_end(arguments);
        refusal->has_culprit = true;
        refusal->rank = rank;
        refusal->pid = pid;
        return (int)code;
}

int error_say(int r, char *error, size_t size, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        int used = vsnprintf(error, size, format, arguments);
        va_end(arguments);
        if (used >= 0 && (size_t)used < size)
                snprintf(error + used, size - (size_t)used, ": %s", strerror(-r));
        return r;
}
