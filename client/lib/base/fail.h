/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text that explains a result code: one per thread, from its last call that did not succeed. The library
 * never logs; this is the only place where it says something in words.
 */
#pragma once

#include <stdint.h>

#include "proto/frame.h"

/* The member and the parameter that a failure is about, as far as they are known. */
struct culprit {
        int64_t rank; /* -1: not known */
        int32_t pid;  /* 0: not known */
        char parameter[LIMIT_NAME + 1];
};

#define CULPRIT_NONE                                                                                         \
        { .rank = -1 }

/* Room for a daemon's sentence and the library's own around it. */
#define FAIL_TEXT (LIMIT_TEXT + 1024u)

/* Text and culprit of a thread's last failed call. */
struct failure {
        const char *current;
        struct culprit culprit;
        char text[FAIL_TEXT];
};

/* Keeps and restores a failure, for a call that succeeds although a part of it failed: its caller sees
 * nothing of that part. */
void fail_keep(struct failure *ret);
void fail_restore(const struct failure *failure);

/* Keeps the text and returns `code`. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a text that needs no formatting and outlives the call: the cheap way for AGAIN and
 * INTERRUPTED. */
int fail_constant(int code, const char *text);
/* Adds the culprit to the text that is kept, and returns `code`. */
int fail_about(int code, const struct culprit *culprit);
int fail_about_member(int code, uint32_t rank, int32_t pid);
int fail_about_parameter(int code, const char *name);
const char *fail_text(void);
const struct culprit *fail_culprit(void);
