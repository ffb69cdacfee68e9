/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the driver about plans: all members here have agreed on one, or cannot agree; the facts of a plan;
 * or no member has it any more. */
#include <assert.h>

#include "rendezvous/machine/node_private.h"

static struct node_plan *agreed_find(struct node *node, uint32_t ordinal) {
        for (uint32_t i = 0; i < node->n_plans; i++)
                if (node->plan[i].ordinal == ordinal)
                        return &node->plan[i];
        return NULL;
}

void node_agree(struct node *node, uint64_t now, uint32_t ordinal, uint64_t digest, bool voids) {
        now = node_wake(node, now);
        if (agreed_find(node, ordinal) != NULL)
                return;
        assert(node->n_plans + TRACK_STEP < node->config.room.tracks);
        struct node_plan *plan = &node->plan[node->n_plans++];
        *plan = (struct node_plan){ .ordinal = ordinal, .digest = digest, .voids = voids };
        if (ordinal >= node->next_plan)
                node->next_plan = ordinal + 1;
        report_send(node, now);
        plan->asked = node->stamp;
}

void node_explain(struct node *node, uint64_t now, uint32_t ordinal, enum note note,
                  const struct report_note *about) {
        now = node_wake(node, now);
        if (node->about == NULL)
                return; /* no other node would hear of it */
        node->note = note;
        node->noted = ordinal;
        *node->about = *about;
        report_send(node, now);
}

void node_forget(struct node *node, uint64_t now, uint32_t ordinal) {
        struct node_plan *plan = agreed_find(node, ordinal);

        now = node_wake(node, now);
        if (plan == NULL)
                return;
        assert(!track_is_step(plan->track) || node->track[plan->track].state == UNIT_IDLE);
        if (plan_is_begun_anew(plan) && ordinal < node->next_plan)
                node->next_plan = ordinal;
        *plan = node->plan[--node->n_plans];
        report_send(node, now);
}
