/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for people: sizes, times, rates; and text made by a format. Pure. */
#pragma once

#include <signal.h>
#include <stdarg.h>
#include <stdint.h>

#define FORMAT_SIZE 32

/* Each writes at most FORMAT_SIZE bytes and returns its buffer, with a text like the one beside it. */
char *format_bytes(char out[FORMAT_SIZE], uint64_t bytes); /* "512 B", "25.0 MiB" */
char *format_age(char out[FORMAT_SIZE], uint64_t ms);   /* "3.2 s", "4 min 10 s", "3 h 12 min", "5 d 2 h" */
char *format_short(char out[FORMAT_SIZE], uint64_t us); /* "0.41 ms", "12.3 ms", "0.21 s", "3.2 s" */
char *format_rate(char out[FORMAT_SIZE], double per_second); /* "18.2/s", "0.031/s" */
char *format_share(char out[FORMAT_SIZE], double share);     /* "3.1 %" */
char *format_norm(char out[FORMAT_SIZE], double norm);       /* "0.4821", "inf", "nan" */

/* How a process has ended: "ended with status 1", "was killed by signal 9 (Killed)". Returns `out`. */
char *format_end(char *out, size_t size, const siginfo_t *info);

/* sprintf into new memory; NULL if there is none. */
char *format_new(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *format_new_list(const char *format, va_list args) __attribute__((format(printf, 1, 0)));

/* The ending of a word after a number: "" or "s". */
const char *format_plural(uint64_t n);
