/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about an unknown word: "did you mean …?". Pure. */
#pragma once

#include <getopt.h>
#include <stddef.h>

#define MEANT_SIZE 256

/* "; did you mean list?", or "" without a word. Returns its buffer. */
char *meant_question(char out[MEANT_SIZE], const char *best);

/* The question for the word of the table that is nearest to `written`. NULL ends the table. */
char *meant_word(char out[MEANT_SIZE], const char *written, const char *const *words);

/* The long option that was meant by "--jsno", "--jsno=1" or "-json", or NULL. Zeros end `longs`. */
const char *meant_option(const char *written, const struct option *longs);

/* The whole complaint about a long option that getopt_long() does not know, or that abbreviates several.
 * Returns its buffer. */
char *meant_complaint(char out[MEANT_SIZE], const char *written, const struct option *longs);
