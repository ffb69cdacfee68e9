/* SPDX-License-Identifier: Apache-2.0 */
/* The reduction of a world of one. */
#pragma once

#include <stdint.h>

struct gradsync_plan;

void standalone_reduce(struct gradsync_plan *plan, uint32_t bucket);
