/* SPDX-License-Identifier: Apache-2.0 */
/* The error text of each thread with its culprit, and the public functions that name results. */
#include "client/lib/base/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/lib/base/options.h"
#include "gradsync/gradsync.h"
#include "proto/frame.h"
#include "proto/names.h"

static _Thread_local char buffer[FAIL_TEXT];
static _Thread_local const char *current = "";
static _Thread_local struct culprit culprit = CULPRIT_NONE;

static void fail_set_text(const char *text) {
        current = text;
        culprit.rank = -1;
        culprit.pid = 0;
        culprit.parameter[0] = '\0';
}

int fail(int code, const char *format, ...) {
        /* An argument may be the current text itself. */
        char text[FAIL_TEXT];
        va_list arguments;

        va_start(arguments, format);
        int n = vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        snprintf(buffer, sizeof(buffer), "%s", n < 0 ? "(no text)" : text);
        fail_set_text(buffer);
        return code;
}

void fail_keep(struct failure *ret) {
        ret->current = current;
        ret->culprit = culprit;
        memcpy(ret->text, buffer, sizeof(buffer));
}

void fail_restore(const struct failure *failure) {
        current = failure->current;
        culprit = failure->culprit;
        memcpy(buffer, failure->text, sizeof(buffer));
}

int fail_constant(int code, const char *text) {
        fail_set_text(text);
        return code;
}

int fail_about(int code, const struct culprit *whom) {
        culprit = *whom;
        return code;
}

int fail_about_member(int code, uint32_t rank, int32_t pid) {
        culprit.rank = rank;
        culprit.pid = pid;
        return code;
}

int fail_about_parameter(int code, const char *name) {
        snprintf(culprit.parameter, sizeof(culprit.parameter), "%s", name);
        return code;
}

const char *fail_text(void) {
        return current;
}

const struct culprit *fail_culprit(void) {
        return &culprit;
}

const char *gradsync_error(void) {
        return fail_text();
}

int gradsync_culprit(struct gradsync_culprit *ret) {
        struct gradsync_culprit ours = { sizeof(ours), culprit.rank, culprit.pid, culprit.parameter };
        int r = ret == NULL ? fail(GRADSYNC_INVALID, "gradsync_culprit(): nowhere to put it")
                            : options_check(ret, sizeof(ours), "gradsync_culprit");

        if (r == GRADSYNC_OK)
                options_give(ret, &ours, sizeof(ours));
        return r;
}

const char *gradsync_result_name(int result) {
        return result < 0 ? "?" : code_name((unsigned)result);
}

const char *gradsync_version(void) {
        return GRADSYNC_RELEASE;
}
