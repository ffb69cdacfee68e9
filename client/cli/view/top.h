/* SPDX-License-Identifier: Apache-2.0 */
/* What `top` shows: jobs and members in one table. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "client/cli/ask/observe.h"

/* One page, compared with what was seen `elapsed_ms` ago (NULL: nothing was). */
void top_page(const struct observation *observation, const struct observation *before, uint64_t elapsed_ms,
              bool color, FILE *to);
