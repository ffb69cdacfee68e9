/* SPDX-License-Identifier: Apache-2.0 */
/* The likely meaning of an unknown word: see near.h. Nothing here allocates, logs or keeps state. */
#include "proto/near.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "proto/cleanup.h"

#define NEAR_ROW (NEAR_LONGEST + 1)
#define NEAR_BEGINNING 3u /* letters after which the beginning of a word is enough */

static char near_letter(char c) {
        return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool near_same(char a, char b) {
        return near_letter(a) == near_letter(b);
}

static size_t near_least(size_t a, size_t b) {
        return a < b ? a : b;
}

/* Both have at most NEAR_LONGEST letters. Three rows of the table are enough: a swap looks back two. */
static size_t near_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
        size_t rows[3][NEAR_ROW];

        for (size_t j = 0; j <= b_length; j++)
                rows[0][j] = j;
        for (size_t i = 1; i <= a_length; i++) {
                size_t *row = rows[i % 3];
                const size_t *above = rows[(i - 1) % 3];

                row[0] = i;
                for (size_t j = 1; j <= b_length; j++) {
                        row[j] = near_least(above[j - 1] + !near_same(a[i - 1], b[j - 1]),
                                            near_least(above[j], row[j - 1]) + 1);
                        if (i > 1 && j > 1 && near_same(a[i - 1], b[j - 2]) && near_same(a[i - 2], b[j - 1]))
                                row[j] = near_least(row[j], rows[(i - 2) % 3][j - 2] + 1);
                }
        }
        return rows[a_length % 3][b_length];
}

void near_try(struct near *near, const char *candidate) {
        size_t length = strnlen(near->word, NEAR_LONGEST + 1);
        size_t other = strnlen(candidate, NEAR_LONGEST + 1);

        if (length == 0 || length > NEAR_LONGEST || other == 0 || other > NEAR_LONGEST)
                return;
        size_t distance = near_distance(near->word, length, candidate, other);
        if (distance > 1 && length >= NEAR_BEGINNING && strncasecmp(near->word, candidate, length) == 0)
                distance = 1;
        if (distance > (length + 1) / 3 || distance >= near_least(length, other))
                return;
        if (near->best && near->distance <= distance)
                return;
        near->best = candidate;
        near->distance = distance;
}
