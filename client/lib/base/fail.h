/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text behind a result code: one per thread, of its last call that did not succeed. The library never
 * logs; this is the only place where it says something in words.
 */
#pragma once

#include <stdint.h>

#include "proto/frame.h"

/* Whom a failure is about, as far as it is known. */
struct culprit {
        int64_t rank; /* -1: not known */
        int32_t pid;  /* 0: not known */
        char parameter[LIMIT_NAME + 1];
};

#define CULPRIT_NONE                                                                                         \
        { .rank = -1 }

/* A daemon's sentence and ours around it. */
#define FAIL_TEXT (LIMIT_TEXT + 1024u)

/* What a thread's last failed call has left. */
struct failure {
        const char *current;
        struct culprit culprit;
        char text[FAIL_TEXT];
};

/* For a call that succeeds although a part of it failed: its caller sees nothing of that part. */
void fail_keep(struct failure *ret);
void fail_restore(const struct failure *failure);

/* Keeps the text and returns `code`. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a text that needs no formatting and outlives the call: the cheap way for AGAIN and
 * INTERRUPTED. */
int fail_constant(int code, const char *text);
/* Adds to the text that is kept whom it is about, and returns `code`. */
int fail_about(int code, const struct culprit *culprit);
int fail_about_member(int code, uint32_t rank, int32_t pid);
int fail_about_parameter(int code, const char *name);
const char *fail_text(void);
const struct culprit *fail_culprit(void);
