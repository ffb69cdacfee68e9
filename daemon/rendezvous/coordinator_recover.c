/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of one node whose daemon has started anew. What was open is decided already, by the one who starts it; so everything
 * stands as after a verdict, and the next generation is made as the membership decides.
 */
#include <string.h>

#include "rendezvous/coordinator_private.h"

void coordinator_recover(struct coordinator *c, uint64_t now, const struct membership_request *request, uint32_t generation,
                         uint32_t world, uint64_t first, uint64_t expected) {
        coordinator_wake(c, now);
        membership_recover(&c->membership, request, generation, world, first, expected);
        c->collecting = false;
        c->order = ORDER_VERDICT;
        c->settled = c->recovered = true;
        c->current = c->comm = (struct generation){ c->term, generation, c->config.nonce };
        c->number = generation;
        c->set = 1;
        c->loss = c->membership.loss;
}

void coordinator_return(struct coordinator *c, uint64_t now, uint32_t rank, uint32_t slot, uint64_t id,
                        const struct membership_request *request) {
        struct message_member *seat = member_find(c, request->member);

        membership_return(&c->membership, rank, slot, id, request);
        if (seat == NULL && c->n < c->config.room.members)
                seat = &c->seat[c->n++];
        if (seat != NULL)
                *seat = (struct message_member){ .request = *request, .rank = rank, .slot = slot, .id = id, .in = true };
}

void coordinator_forget(struct coordinator *c, uint64_t now, uint32_t rank) {
        membership_forget(&c->membership, rank, now);
}

void coordinator_recount(struct coordinator *c, uint32_t number) {
        c->current.number = c->comm.number = number;
        c->number = c->membership.generation = number;
}
