/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text behind a result code: one per thread, of its last call that did not succeed. The library never
 * logs; this is the only place where it says something in words.
 */
#pragma once

/* Keeps the text and returns `code`. */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a text that needs no formatting and outlives the call: the cheap way for AGAIN and
 * INTERRUPTED. */
int fail_constant(int code, const char *text);
const char *fail_text(void);
