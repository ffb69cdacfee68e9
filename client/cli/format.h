/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for people: sizes, times, rates. Pure; each writes at most FORMAT_SIZE bytes and returns its
 * buffer. */
#pragma once

#include <stdint.h>

#define FORMAT_SIZE 32

char *format_bytes(char out[FORMAT_SIZE], uint64_t bytes); /* "512 B", "25.0 MiB" */
char *format_age(char out[FORMAT_SIZE], uint64_t ms); /* "3.2 s", "4 min 10 s", "3 h 12 min", "5 d 2 h" */
char *format_short(char out[FORMAT_SIZE], uint64_t us); /* "0.41 ms", "12.3 ms", "0.21 s", "3.2 s" */
char *format_rate(char out[FORMAT_SIZE], double per_second); /* "18.2/s", "0.031/s" */
char *format_share(char out[FORMAT_SIZE], double share);     /* "3.1 %" */
char *format_norm(char out[FORMAT_SIZE], double norm);       /* "0.4821", "inf", "nan" */
