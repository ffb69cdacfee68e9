/* SPDX-License-Identifier: Apache-2.0 */
/* What is said about a word that is not known: which one was likely meant. Pure. */
#pragma once

#include <getopt.h>
#include <stddef.h>

#define MEANT_SIZE 256

/* "; did you mean list?", or "" without a word. Returns its buffer. */
char *meant_question(char out[MEANT_SIZE], const char *best);

/* Of a word in a table of words that ends with NULL: the question for the nearest one. */
char *meant_word(char out[MEANT_SIZE], const char *written, const char *const *words);

/* Of "--jsno", "--jsno=1" or "-json": the long option that was meant, or NULL. `longs` ends with zeros. */
const char *meant_option(const char *written, const struct option *longs);

/* The whole complaint about a long option that getopt_long() does not know, or that is the beginning of
 * several. Returns its buffer. */
char *meant_complaint(char out[MEANT_SIZE], const char *written, const struct option *longs);
