/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of things in an answer to STATUS, and the place where a piece of it begins. The daemon remembers
 * nothing between pieces: the client brings the place. Within each part things come by number. Things that
 * are newer than the beginning of the part are left out, so a walk ends, and a thing that is there all the
 * time comes once.
 */
#pragma once

#include "session/answer.h"

struct place {
        uint32_t part, row;
        uint64_t thing, until;
};

/* Fills the answer from there on. True when there is nothing left, else *place is where the next piece
 * begins. *ret_found is set if the job asked for is in it. */
bool walk(struct answer *answer, struct place *place, bool *ret_found);
