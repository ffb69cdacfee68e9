/* SPDX-License-Identifier: Apache-2.0 */
/* A membership that somebody else had formed: another coordinator, or a former run of this one. */
#include "rendezvous/membership_private.h"

#include <assert.h>

#include "gradsync.pb-c.h"

void membership_restore(struct membership *m, uint32_t generation, uint32_t world,
                        const struct membership_member *member, uint32_t n, uint64_t now) {
        assert(world <= m->most);
        m->generation = generation;
        m->n = world;
        m->n_waiting = 0;
        membership_set_state(m, MEMBERSHIP_FORMED);
        for (uint32_t rank = 0; rank < world; rank++)
                m->member[rank] = (struct membership_member){
                        .rank = rank, .lost = true, .slot = UINT32_MAX, .request.host = UINT32_MAX
                };
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
