/* SPDX-License-Identifier: Apache-2.0 */
/* A membership that another coordinator, or a former run of this one, had formed. */
#include "rendezvous/machine/membership_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"

/* Those that claim a place come first, by rank; the others as they were. */
static int by_claim(const void *left, const void *right) {
        const struct seat *a = left, *b = right;

        if ((a->state == SEAT_CLAIMS) != (b->state == SEAT_CLAIMS))
                return a->state == SEAT_CLAIMS ? -1 : 1;
        if (a->state == SEAT_CLAIMS && a->rank != b->rank)
                return a->rank < b->rank ? -1 : 1;
        return a->kept < b->kept ? -1 : a->kept > b->kept;
}

/* How many claim a place; of several that claim the same one, one does from now on. */
static uint32_t sort_claims(struct membership *m, uint32_t world) {
        uint32_t all = membership_all(m), n = 0;

        for (uint32_t i = 0; i < all; i++)
                m->seat[i].kept = i; /* says nothing as long as there are no places */
        qsort(m->seat, all, sizeof(m->seat[0]), by_claim);
        for (uint32_t i = 0; i < all && m->seat[i].state == SEAT_CLAIMS; i++)
                if (m->seat[i].rank < world && (i == 0 || m->seat[i].rank != m->seat[i - 1].rank))
                        n++;
                else
                        seat_set_state(&m->seat[i], SEAT_ASKS);
        qsort(m->seat, all, sizeof(m->seat[0]), by_claim);
        return n;
}

static void restore_place(struct membership *m, struct seat *seat) {
        m->min_world = seat->request.min_world;
        m->max_world = seat->request.max_world;
        m->grace = seat->request.grace;
        seat->deadline = UINT64_MAX;
        seat_set_state(seat, SEAT_HELD);
}

/* Each at its rank, the highest first, so that none is in the way. */
static void spread(struct membership *m, uint32_t n) {
        for (uint32_t rank = m->n; rank-- > 0;)
                if (n > 0 && m->seat[n - 1].rank == rank)
                        m->seat[rank] = m->seat[--n];
                else
                        m->seat[rank] = (struct seat){ .rank = rank,
                                                       .state = SEAT_LOST,
                                                       .slot = UINT32_MAX,
                                                       .request.host = UINT32_MAX };
}

void membership_restore(struct membership *m, uint32_t generation, uint32_t world, struct nodeset abandoned,
                        uint64_t now) {
        uint32_t n = sort_claims(m, world), others = membership_all(m) - n;
        uint32_t room = m->most + 1 - world;

        assert(world <= m->most);
        m->n_others = others < room ? others : room; /* what is left is reported again */
        memmove(&m->seat[world], &m->seat[n], m->n_others * sizeof(m->seat[0]));
        for (uint32_t i = 0; i < n; i++)
                restore_place(m, &m->seat[i]);
        m->generation = generation;
        m->n = world;
        m->n_waiting = 0;
        spread(m, n);
        membership_set_state(m, MEMBERSHIP_FORMED);
        for (uint32_t rank = 0; rank < world; rank++)
                if (m->seat[rank].state == SEAT_LOST) {
                        bool was_left = nodeset_has(abandoned, rank);

                        m->seat[rank].kept = was_left ? now : now + m->grace;
                        m->loss = (struct membership_loss){ .rank = rank,
                                                            .cause = was_left ? WIRE__CAUSE__LEAVING
                                                                              : WIRE__CAUSE__EXITED };
                        membership_set_state(m, MEMBERSHIP_REPLACING);
                        m->busy = true;
                }
}
