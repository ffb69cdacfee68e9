/* SPDX-License-Identifier: Apache-2.0 */
#include "job/restart/place.h"

#include <string.h>

#include "rendezvous/machine/message.h"

void place_alone(struct journal_place *place, uint32_t generation, uint32_t world) {
        place->generation = (struct generation){ .number = generation };
        place->world = world;
        place->n_tracks = 0;
        place->n_ranks = world < LIMIT_LOCAL ? world : LIMIT_LOCAL;
        for (uint32_t rank = 0; rank < place->n_ranks; rank++)
                place->rank[rank] = rank;
}

bool place_has(const struct journal_place *place, uint32_t rank) {
        for (uint32_t i = 0; i < place->n_ranks; i++)
                if (place->rank[i] == rank)
                        return true;
        return false;
}

const struct journal_track *place_find(const struct journal_place *place, uint32_t plan) {
        for (uint32_t i = 0; i < place->n_tracks; i++)
                if (place->track[i].plan == plan)
                        return &place->track[i];
        return NULL;
}

uint32_t place_tracks(const struct journal_place *place) {
        uint32_t n = TRACK_STEP + 1;

        for (uint32_t i = 0; i < place->n_tracks; i++)
                if (place->track[i].track >= n)
                        n = place->track[i].track + 1;
        return n;
}

bool place_agrees(const struct journal_place *a, const struct journal_place *b) {
        return a->n_ranks == b->n_ranks && memcmp(a->rank, b->rank, a->n_ranks * sizeof(a->rank[0])) == 0;
}
