/* SPDX-License-Identifier: Apache-2.0 */
/* A stderr that the test reads. */
#pragma once

#include "unit.h"

#include <ctype.h>

static int real_stderr, captured;

/* From here on stderr is a pipe, and not that of a service. */
static int capture_stderr(void) {
        int fds[2];

        unsetenv("INVOCATION_ID");
        unsetenv("JOURNAL_STREAM");
        real_stderr = dup(STDERR_FILENO);
        if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0 || dup2(fds[1], STDERR_FILENO) < 0)
                return -1;
        close(fds[1]);
        captured = fds[0];
        return 0;
}

static int release_stderr(void) {
        dup2(real_stderr, STDERR_FILENO);
        close(real_stderr);
        close(captured);
        return 0;
}

/* Returns the text that was written since the last call. */
static const char *written(void) {
        static char text[65536];
        ssize_t n = read(captured, text, sizeof(text) - 1);

        text[n > 0 ? n : 0] = '\0';
        return text;
}

/* The same without the time at which each line begins; fails where a line has none. */
static inline const char *written_timeless(void) {
        static const char form[] = "dddd-dd-dd dd:dd:dd.ddd ";
        static char rest[65536];
        const char *text = written();
        size_t used = 0;

        while (*text) {
                const char *end = strchrnul(text, '\n');

                for (const char *c = form; *c; c++, text++)
                        if (*c == 'd' ? !isdigit((unsigned char)*text) : *text != *c)
                                fail_msg("no time: %s", text);
                end += *end == '\n';
                memcpy(rest + used, text, (size_t)(end - text));
                used += (size_t)(end - text);
                text = end;
        }
        rest[used] = '\0';
        return rest;
}

/* Capture stderr before a test of tests.h, and release it after the test. */
static inline int capture(void **state) {
        return capture_stderr();
}

static inline int release(void **state) {
        return release_stderr();
}
