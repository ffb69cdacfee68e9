/* SPDX-License-Identifier: Apache-2.0 */
/* Thread-local error text, and the public functions that name results. */
#include "client/lib/base/fail.h"

#include <stdarg.h>
#include <stdio.h>

#include "gradsync/gradsync.h"
#include "proto/frame.h"
#include "proto/names.h"

/* A daemon's sentence and ours around it. */
#define TEXT_MAX (LIMIT_TEXT + 1024u)

static _Thread_local char buffer[TEXT_MAX];
static _Thread_local const char *current = "";

int fail(int code, const char *format, ...) {
        /* An argument may be the current text itself. */
        char text[TEXT_MAX];
        va_list arguments;

        va_start(arguments, format);
        int n = vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        snprintf(buffer, sizeof(buffer), "%s", n < 0 ? "(no text)" : text);
        current = buffer;
        return code;
}

int fail_constant(int code, const char *text) {
        current = text;
        return code;
}

const char *fail_text(void) {
        return current;
}

const char *gradsync_error(void) {
        return fail_text();
}

const char *gradsync_result_name(int result) {
        return result < 0 ? "?" : code_name((unsigned)result);
}

const char *gradsync_version(void) {
        return GRADSYNC_RELEASE;
}
