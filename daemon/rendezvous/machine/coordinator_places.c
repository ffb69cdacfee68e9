/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a job that waits for members, as nodes show them: vacant ranks, and members without a place. */
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

static void places_add(struct places *places, uint32_t rank) {
        places->vacant[rank / 64] |= UINT64_C(1) << rank % 64;
}

static uint32_t places_limit(uint32_t n) {
        return n < LIMIT_VACANT ? n : LIMIT_VACANT;
}

/* Members that asked for no rank are taken to get the lowest free ones. */
static void find_unasked(const struct membership *m, struct places *ret) {
        uint32_t unasked = m->n_waiting;
        bool taken[LIMIT_VACANT] = { false };

        for (uint32_t i = 0; i < m->n; i++)
                if (!m->seat[i].request.has_rank)
                        unasked++;
                else if (m->seat[i].request.rank < LIMIT_VACANT)
                        taken[m->seat[i].request.rank] = true;
        for (uint32_t rank = 0; rank < places_limit(m->max_world); rank++) {
                if (taken[rank])
                        continue;
                if (unasked > 0)
                        unasked--;
                else
                        places_add(ret, rank);
        }
}

static struct places find_places(const struct membership *m) {
        struct places places = { .grace = m->grace };

        if (m->state == MEMBERSHIP_FORMING)
                find_unasked(m, &places);
        for (uint32_t rank = 0; rank < places_limit(m->n) && m->state != MEMBERSHIP_FORMING; rank++)
                if (m->seat[rank].state == SEAT_LOST)
                        places_add(&places, rank);
        return places;
}

void places_say_to(struct coordinator *c, uint32_t node) {
        const struct membership *m = &c->membership;
        struct order order;

        coordinator_address(c, node, ORDER_PLACES, &order);
        struct order_places *said = &order.places;
        said->places = find_places(m);
        said->n_waiting = 0;
        for (uint32_t i = m->n; i < m->n + m->n_waiting && said->n_waiting < LIMIT_SEATS; i++)
                if (m->seat[i].request.node == node)
                        said->waiting[said->n_waiting++] = m->seat[i].request.member;
        effects_order(&c->out, &order);
}

/* FNV-1a. Only whether something is said at once hangs on it. */
static uint64_t digest(uint64_t sum, uint64_t value) {
        return (sum ^ value) * UINT64_C(0x100000001b3);
}

static uint64_t places_digest(const struct membership *m) {
        const struct places places = find_places(m);
        uint64_t sum = digest(UINT64_C(0xcbf29ce484222325), places.grace);

        for (uint32_t i = 0; i < LIMIT_VACANT / 64; i++)
                sum = digest(sum, places.vacant[i]);
        for (uint32_t i = m->n; i < m->n + m->n_waiting; i++)
                sum = digest(sum, m->seat[i].request.member);
        return sum;
}

/* Between nodes at once only if nothing was said of it for a heartbeat, which says it again: where a job
 * forms on many nodes, each would hear of each other one. */
void places_tell(struct coordinator *c, uint64_t now, bool again) {
        uint64_t digested = places_digest(&c->membership);

        if (!again &&
            (digested == c->places || (!c->config.alone && now < c->placed + c->config.times.heartbeat)))
                return;
        c->places = digested;
        c->placed = now;
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].known)
                        places_say_to(c, node);
}
