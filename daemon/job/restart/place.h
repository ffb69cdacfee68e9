/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a job that comes back: see struct journal_place. That of a job of one daemon follows from the
 * size of its world. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "job/keep/journal.h"

void place_alone(struct journal_place *place, uint32_t generation, uint32_t world);
/* One of the members has that rank. */
bool place_has(const struct journal_place *place, uint32_t rank);
/* How many tracks a node needs to speak of all that are named. */
uint32_t place_tracks(const struct journal_place *place);
/* Both have the same members. */
bool place_agrees(const struct journal_place *a, const struct journal_place *b);
/* NULL: the plan has no track. */
const struct journal_track *place_find(const struct journal_place *place, uint32_t plan);
