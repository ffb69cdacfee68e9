/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about an unknown word: "did you mean …?". Pure. */
#pragma once

#include <getopt.h>
#include <stddef.h>

#define SUGGEST_SIZE 256

/* "; did you mean list?", or "" without a word. Returns its buffer. */
char *suggest_question(char out[SUGGEST_SIZE], const char *best);

/* The question for the word of the table that is nearest to `written`. NULL ends the table. */
char *suggest_word(char out[SUGGEST_SIZE], const char *written, const char *const *words);

/* The long option that was meant by "--jsno", "--jsno=1" or "-json", or NULL. Zeros end `longs`. */
const char *suggest_option(const char *written, const struct option *longs);

/* The whole complaint about a long option that getopt_long() does not know, or that abbreviates several.
 * Returns its buffer. */
char *suggest_complaint(char out[SUGGEST_SIZE], const char *written, const struct option *longs);
