/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as people read them. Pure. */
#pragma once

#include <stdbool.h>

#define RANKS_TEXT 160u

/* "rank 3", "ranks 0, 1", "ranks 0 to 3, 7": those below `n` that `of` has. Returns `out`. */
char *ranks_text(const bool *of, unsigned n, char out[RANKS_TEXT]);
