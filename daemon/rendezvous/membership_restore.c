/* SPDX-License-Identifier: Apache-2.0 */
/* Memberships that somebody else had formed: a daemon before this one, or another coordinator. */
#include "rendezvous/membership_private.h"

#include <assert.h>

#include "gradsync.pb-c.h"

void membership_recover(struct membership *m, const struct membership_request *request, uint32_t generation, uint32_t n,
                        uint64_t first, uint64_t expected) {
        assert(n <= m->most);
        membership_init(m, m->name, request->incarnation);
        membership_set_state(m, MEMBERSHIP_REPLACING);
        m->generation = generation;
        m->min_world = request->min_world;
        m->max_world = request->max_world;
        m->grace = request->grace;
        m->n = n;
        m->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        for (uint32_t rank = 0; rank < n; rank++)
                m->member[rank] = (struct membership_member){
                        .request = { .member = first + rank, .min_world = request->min_world,
                                     .max_world = request->max_world, .adapts = true },
                        .rank = rank,
                        .slot = rank,
                        .lost = true,
                        .expected = expected,
                        .kept = expected + request->grace,
                };
}

void membership_return(struct membership *m, uint32_t rank, uint32_t slot, uint64_t id, const struct membership_request *request) {
        struct membership_member *place = &m->member[rank];

        place->request = *request;
        place->slot = slot;
        place->id = id;
        place->deadline = UINT64_MAX;
        place->lost = place->fresh = false;
        place->expected = 0;
}

void membership_forget(struct membership *m, uint32_t rank, uint64_t now) {
        struct membership_member *place = &m->member[rank];

        if (!place->lost || place->expected == 0)
                return;
        place->expected = 0;
        place->kept = now + m->grace;
        membership_fill(m, place);
}

void membership_restore(struct membership *m, uint32_t generation, uint32_t world, const struct membership_member *member,
                        uint32_t n, uint64_t now) {
        assert(world <= m->most);
        m->generation = generation;
        m->n = world;
        m->n_waiting = 0;
        membership_set_state(m, MEMBERSHIP_FORMED);
        for (uint32_t rank = 0; rank < world; rank++)
                m->member[rank] = (struct membership_member){ .rank = rank, .lost = true, .slot = UINT32_MAX,
                                                              .request.host = UINT32_MAX };
        for (uint32_t i = 0; i < n; i++) {
                m->min_world = member[i].request.min_world;
                m->max_world = member[i].request.max_world;
                m->grace = member[i].request.grace;
                m->member[member[i].rank] = member[i];
        }
        for (uint32_t rank = 0; rank < world; rank++)
                if (m->member[rank].lost) {
                        m->member[rank].kept = now + m->grace;
                        m->loss = (struct membership_loss){ .rank = rank, .cause = WIRE__CAUSE__EXITED };
                        membership_set_state(m, MEMBERSHIP_REPLACING);
                        m->busy = true;
                }
}
