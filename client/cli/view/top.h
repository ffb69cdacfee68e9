/* SPDX-License-Identifier: Apache-2.0 */
/* The page of `top`: jobs and members in one table. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "client/cli/view/figures.h"

/* One page. `remark` stands at the end of its first line. */
void top_page(const struct observation *observation, const struct figures_list *list, const char *remark,
              bool color, FILE *to);
