/* SPDX-License-Identifier: Apache-2.0 */
/* Options of orders and reports that a script makes up. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/machine/message.h"
#include "script.h"

/* N,N,…: as many as there are; NULL is fine. */
static inline void words_numbers(const char *text, uint64_t *number, uint32_t n) {
        for (uint32_t i = 0; i < n && text != NULL; i++) {
                char *rest;

                number[i] = strtoull(text, &rest, 0);
                text = *rest == ',' ? rest + 1 : NULL;
        }
}

/* generation=N (of both), comm=N, nonce=N */
static inline void words_generation(struct script *script, struct generation *generation,
                                    struct generation *comm) {
        uint32_t number = (uint32_t)script_option(script, "generation", generation->number);

        if (number != generation->number) {
                generation->number = number;
                *comm = *generation;
        }
        comm->number = (uint32_t)script_option(script, "comm", comm->number);
        generation->nonce = (uint32_t)script_option(script, "nonce", generation->nonce);
}

/* tracks=N, mark=N[,N...] */
static inline void words_marks(struct script *script, uint32_t *n_tracks, uint64_t *mark) {
        const char *text = script_text(script, "mark");

        *n_tracks = (uint32_t)script_option(script, "tracks", *n_tracks);
        if (text == NULL)
                return;
        *n_tracks = *n_tracks > 4 ? *n_tracks : 4;
        words_numbers(text, mark, 4);
}

struct words_plan {
        unsigned ordinal, track, unit, turn;
};

/* plan=ORDINAL:TRACK[:UNIT:TURN], several times: of that digest, 11 times the ordinal, and open. False: there
 * is no other one. */
static inline bool words_plan(struct script *script, uint32_t n_plans, uint32_t *n_tracks, uint64_t *mark,
                              struct words_plan *ret) {
        const char *text = script_text(script, "plan");

        *ret = (struct words_plan){ 0 };
        if (text == NULL)
                return false;
        if (n_plans == LIMIT_PLANS ||
            sscanf(text, "%u:%u:%u:%u", &ret->ordinal, &ret->track, &ret->unit, &ret->turn) < 2)
                script_refuse(script, "which plan?");
        if (*n_tracks <= ret->track) {
                memset(&mark[*n_tracks], 0, (ret->track + 1 - *n_tracks) * sizeof(*mark));
                *n_tracks = ret->track + 1;
        }
        return true;
}
