/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where nodes agree on launches, up to where on each lane they may launch: as far as all of them are ready.
 * All are told at once when that is further than before, and launch in the order in which they are told.
 */
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

/* The communicator that stays is drained: each node has launched as much as all others, and is ready for no
 * more. */
void launches_begin(struct coordinator *c) {
        bool stays = !generation_equal(c->comm, c->current);

        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++) {
                uint64_t drained = 0;

                for (uint32_t node = 0; node < c->top && stays; node++)
                        if (coordinator_survives(c, node))
                                drained = c->node[node].ready[lane];
                if (!planted(PLANTED_KEEPS_GO) || !stays)
                        c->go[lane] = drained;
        }
}

void launches_learn(struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t lane = 0; lane < LIMIT_LANES && coordinator_survives(c, node); lane++)
                        if (c->node[node].go[lane] > c->go[lane] && !planted(PLANTED_FORGETS_GO))
                                c->go[lane] = c->node[node].go[lane];
}

static uint64_t launches_ready_of(const struct coordinator *c, uint32_t node, uint32_t lane) {
        return generation_equal(c->node[node].generation, c->current) ? c->node[node].ready[lane] : 0;
}

/* Up to where all nodes are ready; or else no further than before. */
static uint64_t launches_ready(struct coordinator *c, uint32_t lane) {
        uint32_t nodes = c->config.room.nodes;
        uint64_t all = UINT64_MAX, any = c->go[lane];

        for (uint32_t i = 0, node = c->unready[lane]; i < nodes; i++, node = (node + 1) % nodes) {
                uint64_t ready = launches_ready_of(c, node, lane);

                if (!coordinator_survives(c, node))
                        continue;
                if (ready <= c->go[lane] && !planted(PLANTED_AGREES_WITH_ANY)) {
                        c->unready[lane] = node;
                        return c->go[lane];
                }
                all = ready < all ? ready : all;
                any = ready > any ? ready : any;
        }
        return planted(PLANTED_AGREES_WITH_ANY) ? any : all;
}

bool launches_agree(struct coordinator *c) {
        bool further = false;

        if (c->stage < STAGE_ENTERING || c->stage > STAGE_STOPPING || c->tally.survivors == 0)
                return false;
        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++) {
                uint64_t ready = launches_ready(c, lane);

                further |= ready > c->go[lane];
                c->go[lane] = ready;
        }
        return further;
}
