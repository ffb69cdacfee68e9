/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver about open steps and operations. A call about another generation is absorbed. */
#include "rendezvous/machine/node_private.h"

/* Begins each call about a track's unit. */
static bool node_is_about(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_wake(node, now);
        return unit_is_open(node, generation, which);
}

bool node_open(struct node *node, uint64_t now, struct generation generation, uint32_t which,
               const uint64_t planned[LIMIT_LANES]) {
        node_wake(node, now);
        if (node->phase != NODE_RUNNING || which >= node->config.room.tracks ||
            !generation_equal(generation, node->generation) || node->track[which].state != UNIT_IDLE)
                return false;
        node_use_tracks(node, which + 1);
        unit_begin(node, which, planned);
        node_advance(node, node->time.now);
        return true;
}

void node_offer(struct node *node, uint64_t now, struct generation generation, uint32_t which,
                uint32_t lane) {
        if (!node_is_about(node, now, generation, which))
                return;
        unit_offer(node, which, lane);
        node_advance(node, node->time.now);
}

/* Passes on a call that is about a unit, and has no other argument. */
static void node_pass(struct node *node, uint64_t now, struct generation generation, uint32_t which,
                      void (*take)(struct node *node, uint32_t track)) {
        if (!node_is_about(node, now, generation, which))
                return;
        take(node, which);
        node_advance(node, node->time.now);
}

void node_full(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_full);
}

void node_differ(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_differ);
}

void node_spoil(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_spoil);
}

void node_landed(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_landed);
}

void node_tear_unit(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_tear);
}

void node_tear(struct node *node, struct generation generation) {
        node->torn |= node->world > 0 && generation_equal(generation, node->generation);
}

void node_quiet(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_quiet);
}

void node_done(struct node *node, uint64_t now, struct generation comm, uint32_t lane, uint64_t seq,
               uint64_t value) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || lane >= node->config.n_lanes ||
            seq != node->lane[lane].completed + 1 || seq > node->lane[lane].launched)
                return;
        unit_done(node, lane, value);
        node_advance(node, node->time.now);
}
