/* SPDX-License-Identifier: Apache-2.0 */
/* A node whose daemon has started anew: it stands where a verdict has been carried out, and its members come back one by one. */
#include <string.h>

#include "rendezvous/node_private.h"

void node_recover(struct node *node, uint64_t now, struct generation generation, uint32_t world) {
        node_set_phase(node, NODE_SETTLED, ANSWER_SETTLED);
        node->term = generation.term;
        node->round = 1;                /* less than the one of whatever the coordinator says next */
        node->coordinator = node->config.address;
        node->contact = now;
        node->generation = node->comm = generation;
        node->set = UINT64_C(1) << node->config.address;
        node->world = world;
        report_send(node, now);
}

void node_return(struct node *node, uint64_t now, const struct membership_request *request, uint32_t rank, uint32_t slot,
                 const struct tag *tag) {
        struct message_member *member;

        node_wake(node, now);
        if (node->phase != NODE_SETTLED || node->n == LIMIT_WORLD)
                return;
        member = report_add(node, request, tag);
        member->rank = rank;
        member->slot = slot;
        member->in = true;
        report_send(node, now);
}

void node_recount(struct node *node, uint32_t number) {
        node->generation.number = node->comm.number = number;
}
