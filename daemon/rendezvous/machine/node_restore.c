/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node whose daemon has started anew. The journal of the former run is given to it as the report that it
 * sends from then on; the coordinator judges by it as by any other report.
 */
#include <string.h>

#include "rendezvous/machine/node_private.h"

void node_depart(struct node *node, uint64_t now) {
        if (node->away)
                return;
        now = node_wake(node, now);
        node->away = true;
        report_send(node, now);
        node->left = node->stamp;
}

bool node_may_be_called(const struct node *node) {
        return node->phase == NODE_SETTLED && !node->suspended && node->contact < node->left;
}

void node_expect(struct node *node, uint64_t now) {
        node->awaits = true;
        report_send(node, node_look(node, now));
}

static void take_member(struct node *node, const struct report_member *reported) {
        struct report_member *member = report_add(node, &reported->request, &reported->tag);

        member->rank = reported->rank;
        member->slot = reported->slot;
        member->id = reported->id;
        member->behind = reported->behind;
        member->in = true;
}

void node_restore(struct node *node, uint64_t now, const struct report *report) {
        if (node->phase != NODE_OUT || !node->awaits)
                return;
        node->awaits = false;
        if (report->world > 0) {
                node->generation = report->generation;
                nodeset_copy(node->set, report_set(report));
                nodeset_add(node->set, node->config.address);
                node->world = report->world;
                node->torn = report->torn;
                node->unsynced = report->behind;
                if (tag_compare(&report->history, &node->history) > 0)
                        node->history = report->history;
                node_use_tracks(node, report->n_tracks);
                node->next_plan = report->next_plan;
                for (uint32_t which = 0; which < report->n_tracks; which++)
                        unit_restore(&node->track[which], report->committed[which],
                                     report->mark[which] > report->committed[which],
                                     report->prepared[which] > report->committed[which]);
                for (uint32_t i = 0; i < report->n_plans; i++)
                        node->plan[node->n_plans++] = (struct node_plan){ .digest = report->plan[i].digest,
                                                                          .ordinal = report->plan[i].ordinal,
                                                                          .track = report->plan[i].track,
                                                                          .before = report->plan[i].before };
                for (uint32_t i = 0; i < report->n_members && node->n < node->config.room.members; i++)
                        take_member(node, &report->member_of[i]);
                node_set_phase(node, NODE_FROZEN, ANSWER_REPORT);
        }
        report_send(node, node_look(node, now));
}
