/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collectives that a node hands to the engine on each lane. A collective gets its place in the order of
 * its lane when it is ready to be launched. It is launched at once, unless launches are agreed on: then all
 * nodes say up to where they are ready, and launch up to where the coordinator says, in the order in which it
 * does.
 */
#include <assert.h>
#include <string.h>

#include "rendezvous/machine/node_private.h"

bool lane_is_agreed(const struct node *node, uint32_t at) {
        return node->config.agreed && at + 1 < node->config.n_lanes;
}

bool lane_has_room(const struct node *node, uint32_t at) {
        return node->lane[at].ready - node->lane[at].completed < node->config.window;
}

/* The next one of that lane may be launched. */
static void lane_let(struct node *node, uint32_t at) {
        assert(node->n_due < sizeof(node->due));
        node->lane[at].go++;
        node->due[node->n_due++] = (uint8_t)at;
}

void lane_note_ready(struct node *node, uint32_t which, uint32_t at) {
        struct node_lane *lane = &node->lane[at];

        lane->ready++;
        lane->track[lane->ready % LIMIT_WINDOW] = which;
        if (!lane_is_agreed(node, at) || planted(PLANTED_LAUNCHES_UNAGREED))
                lane_let(node, at);
}

/* One word lets nodes launch in the order of the lanes, the same one on all of them. A frozen node is ready
 * for nothing, and so may launch nothing. */
void lane_hear(struct node *node, const struct order *order) {
        for (uint32_t at = 0; at < node->config.n_lanes; at++)
                while (lane_is_agreed(node, at) && node->lane[at].go < order->go[at] &&
                       node->lane[at].go < node->lane[at].ready)
                        lane_let(node, at);
}

uint64_t lane_ready(const struct node *node) {
        uint64_t ready = 0;

        for (uint32_t at = 0; at < node->config.n_lanes; at++)
                ready += lane_is_agreed(node, at) ? node->lane[at].ready : 0;
        return ready;
}

bool lane_take(struct node *node, uint32_t *ret_at) {
        uint32_t first = 0;

        for (uint32_t i = 1; i < node->n_due && planted(PLANTED_LAUNCHES_BY_LANE); i++)
                if (node->due[i] < node->due[first])
                        first = i;
        if (node->n_due == 0)
                return false;
        *ret_at = node->due[first];
        node->n_due--;
        memmove(&node->due[first], &node->due[first + 1], node->n_due - first);
        return true;
}

uint32_t lane_next(const struct node *node, uint32_t at) {
        return node->lane[at].track[(node->lane[at].launched + 1) % LIMIT_WINDOW];
}

uint64_t lane_count_launch(struct node *node, uint32_t at) {
        assert(node->lane[at].launched < node->lane[at].go);
        return ++node->lane[at].launched;
}

uint32_t lane_complete(struct node *node, uint32_t at) {
        struct node_lane *lane = &node->lane[at];
        uint64_t seq = ++lane->completed;
        uint32_t which = lane->track[seq % LIMIT_WINDOW];

        for (; planted(PLANTED_CREDITS_LOWEST) && seq <= lane->launched; seq++)
                if (lane->track[seq % LIMIT_WINDOW] < which)
                        which = lane->track[seq % LIMIT_WINDOW];
        return which;
}

uint64_t lane_fill(struct node *node, uint32_t at) {
        struct node_lane *lane = &node->lane[at];

        lane->launched++;
        lane->track[lane->launched % LIMIT_WINDOW] = LIMIT_TRACKS;
        lane->ready = lane->go = lane->launched;
        return lane->launched;
}

void lane_forget(struct node *node) {
        for (uint32_t at = 0; at < node->config.n_lanes; at++)
                node->lane[at].ready = node->lane[at].go = node->lane[at].launched;
        node->n_due = 0;
}

void lane_reset(struct node *node) {
        memset(node->lane, 0, sizeof(node->lane));
        node->n_due = 0;
}
