/* SPDX-License-Identifier: Apache-2.0 */
/* The likely meaning of an unknown word: see spelling.h. Nothing here allocates, logs or keeps state. */
#include "proto/spelling.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "proto/cleanup.h"

#define NEAR_ROW (SPELLING_LONGEST + 1)
#define NEAR_BEGINNING 3u /* letters after which the beginning of a word is enough */

static char spelling_letter(char c) {
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool spelling_same(char a, char b) {
        return spelling_letter(a) == spelling_letter(b);
}

static size_t spelling_least(size_t a, size_t b) {
        return a < b ? a : b;
}

/* Both have at most SPELLING_LONGEST letters. Three rows of the table are enough: a swap looks back two. */
static size_t spelling_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
        size_t rows[3][NEAR_ROW];

        for (size_t j = 0; j <= b_length; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= a_length; i++) {
                size_t *row = rows[i % 3];
                const size_t *above = rows[(i - 1) % 3];

                row[0] = i;
                for (size_t j = 1; j <= b_length; j++) {
                        row[j] = spelling_least(above[j - 1] + !spelling_same(a[i - 1], b[j - 1]),
                                                spelling_least(above[j], row[j - 1]) + 1);
                        if (i > 1 && j > 1 && spelling_same(a[i - 1], b[j - 2]) &&
                            spelling_same(a[i - 2], b[j - 1]))
                                row[j] = spelling_least(row[j], rows[(i - 2) % 3][j - 2] + 1);
                }
        }
        return rows[a_length % 3][b_length];
}

void spelling_try(struct spelling *spelling, const char *candidate) {
        size_t length = strnlen(spelling->word, SPELLING_LONGEST + 1);
        size_t other = strnlen(candidate, SPELLING_LONGEST + 1);

        if (length == 0 || length > SPELLING_LONGEST || other == 0 || other > SPELLING_LONGEST)
                return;
        size_t distance = spelling_distance(spelling->word, length, candidate, other);
        if (distance > 1 && length >= NEAR_BEGINNING && strncasecmp(spelling->word, candidate, length) == 0)
                distance = 1;
        if (distance > (length + 1) / 3 || distance >= spelling_least(length, other))
                return;
        if (spelling->best && spelling->distance <= distance)
                return;
        spelling->best = candidate;
        spelling->distance = distance;
}
