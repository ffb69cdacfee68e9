/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as people read them. Pure. */
#pragma once

#include <stdbool.h>

#define RANKS_TEXT 160u

/* Writes "rank 3", "ranks 0, 1" or "ranks 0 to 3, 7": the ranks below `n` for which `of` is true. Returns
 * `out`. */
char *ranks_text(const bool *of, unsigned n, char out[RANKS_TEXT]);
