/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order an answer to STATUS tells things, and where a piece of it begins. Nothing is remembered
 * between pieces: a place is what the client brings. Things come by number within each part, those that are
 * newer than the beginning of the part not at all; so a walk ends, and has each thing once that is there all
 * the time.
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
