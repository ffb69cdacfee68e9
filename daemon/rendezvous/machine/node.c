/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node carries out orders: the highest numbered one of the highest term. Earlier ones are void
 * then, what comes late is dropped. A node that hears of no coordinator holds still first, and leaves its
 * generation after a longer time; it never makes a smaller world of its own.
 */
#include "rendezvous/machine/node.h"

#include <string.h>

#include "rendezvous/machine/node_private.h"

/* Whether this comes from the coordinator that there is now, and is meant for this run of this node. */
static bool accept(struct node *node, uint64_t now, const struct order *order) {
        if (!order_valid(order) || order->to != node->config.address ||
            order->instance != node->config.instance || !order_fits(order, &node->config.room))
                return false;
        if (order->term < node->term && !planted(PLANTED_FENCE_OPEN)) {
                report_send(node, now); /* which says that there is a later one */
                return false;
        }
        if (order->term > node->term) {
                node->term = order->term;
                node->round = 0;
                node->answer = ANSWER_REPORT;
                node->reported = 0;
        }
        if (order->stamp > node->contact && order->stamp <= node->stamp)
                node->contact = order->stamp;
        if (tag_compare(&order->history, &node->history) > 0)
                node->history = order->history; /* for the coordinator that comes next */
        return true;
}

void node_receive(struct node *node, uint64_t now, const struct order *order) {
        now = node_look(node, now);
        bool accepted = accept(node, now, order);
        node_judge_contact(node);
        if (!accepted)
                return;
        if (node->suspended && now <= node->contact + node->config.times.patience)
                node->suspended = false;
        if (node_is_in(node) && generation_equal(order->generation, node->generation)) {
                plan_hear(node, order);
                lane_hear(node, order);
        }
        if (now > order->stamp + node->config.times.patience) {
                /* It waited while this node slept, and may be about a world that is over. If not, it is said
                 * again. */
        } else if (order->kind == ORDER_REFUSE) {
                report_refuse(node, order);
        } else if (order->kind == ORDER_PLACES) {
                report_note_places(node, order);
        } else if (order->kind == ORDER_EXPLAIN) {
                plan_be_asked(node, order);
        } else if (order->kind == ORDER_REJECT) {
                if (plan_be_rejected(node, order))
                        report_send(node, now);
        } else if (order->round > node->round ||
                   (order->kind == ORDER_FENCE && order->round == node->round)) {
                node->round = order->round;
                order_carry_out(node, now, order);
        }
        node_advance(node, now);
}

void node_tick(struct node *node, uint64_t now) {
        now = node_wake(node, now);
        node_advance(node, now);
        if (now >= node->reported + node->config.times.heartbeat)
                report_send(node, now);
}

uint64_t node_deadline(const struct node *node) {
        return own_time_to_driver(&node->time, node->reported + node->config.times.heartbeat);
}

static void node_note_links(struct node *node, struct nodeset unreachable) {
        nodeset_unite(node->links, unreachable);
        nodeset_intersect(node->links, node->set);
}

void node_built(struct node *node, uint64_t now, struct generation comm, struct nodeset unreachable) {
        now = node_wake(node, now);
        if (!generation_equal(comm, node->comm) || !node->unbuilt)
                return;
        node_note_links(node, unreachable);
        if (!nodeset_empty(node->links)) {
                report_send(node, now);
                return;
        }
        node->unbuilt = false;
        if (node->phase == NODE_BUILDING) {
                node_enter(node);
                report_send(node, now);
        }
        node_advance(node, now);
}

void node_aborted(struct node *node, uint64_t now, struct generation comm) {
        now = node_wake(node, now);
        if (!generation_equal(comm, node->comm))
                return;
        node->comm = (struct generation){ 0 };
        node->unbuilt = false;
        lane_reset(node);
        if (node->phase == NODE_ABORTING)
                node_say(node, now, NODE_ABORTED, ANSWER_ABORTED);
        node_advance(node, now);
}

void node_unreachable(struct node *node, uint64_t now, struct generation comm, struct nodeset nodes) {
        now = node_wake(node, now);
        if (!generation_equal(comm, node->comm) || !nodeset_meet(nodes, node->set) || !node_is_in(node))
                return;
        node_note_links(node, nodes);
        report_send(node, now);
}
