/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the known word that a user most likely meant by an unknown one. The distance of two words is the
 * least number of letters to leave out, add, replace, or swap with the next one, in order to turn one into
 * the other; upper and lower case are alike. Pure.
 *
 *      struct spelling spelling = { .word = text };
 *
 *      for (size_t i = 0; i < array_size(table); i++)
 *              spelling_try(&spelling, table[i].name);
 *      if (spelling.best)
 *              printf("did you mean %s?\n", spelling.best);
 */
#pragma once

#include <stddef.h>

#define SPELLING_LONGEST 64u /* a word beyond this is near to nothing */

struct spelling {
        const char *word; /* what was written */
        const char
                *best; /* the nearest so far, as it was given to spelling_try(); NULL: none is near enough */
        size_t distance; /* of `best` */
};

/* Takes the candidate if it is near enough (about one mistake in three letters), and nearer than the best
 * one. If three or more letters were written, a longer word that begins with them is one mistake away,
 * whatever its length. */
void spelling_try(struct spelling *spelling, const char *candidate);
