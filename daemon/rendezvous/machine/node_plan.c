/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plans of a node, and their tracks. The coordinator gives each plan a track, the same one on every node,
 * and opens it in each generation all of whose nodes have it. So no node waits in the engine for one that
 * does not know what a step is made of.
 */
#include "rendezvous/machine/node_private.h"

/* As the order has it; NULL: it does not know of the plan, or knows no track of it. */
static const struct order_plan *agreed_in(const struct node *node, const struct order *order,
                                          const struct node_plan *plan) {
        for (uint32_t i = 0; i < order->n_plans && order->stamp >= plan->asked; i++)
                if (order->plan[i].ordinal == plan->ordinal && track_is_step(order->plan[i].track) &&
                    order->plan[i].track < node->config.room.tracks)
                        return &order->plan[i];
        return NULL;
}

static void agreed_set_track(struct node *node, struct node_plan *plan, uint32_t track, uint64_t before) {
        uint64_t committed = node->track[track].committed;

        plan->track = track;
        plan->before = before;
        node_use_tracks(node, track + 1);
        node_act(node, &(struct action){ .kind = ACTION_TRACK,
                                         .track = track,
                                         .number = plan->ordinal,
                                         .index = committed > before ? committed - before : 0,
                                         .generation = node->generation });
}

static bool track_is_taken(const struct node *node, uint32_t track) {
        for (uint32_t i = 0; i < node->n_plans; i++)
                if (node->plan[i].track == track)
                        return true;
        return false;
}

/* Nothing more has to be said of it. */
static void note_clear(struct node *node, uint32_t ordinal) {
        if (node->noted == ordinal)
                node->note = NOTE_NONE;
}

/* A later coordinator that fences this node may not know which tracks the former one gave it, and have given
 * them to other plans: such a plan waits for the next generation. */
void plan_hear(struct node *node, const struct order *order) {
        for (uint32_t i = 0; i < node->n_plans; i++) {
                struct node_plan *plan = &node->plan[i];
                const struct order_plan *said = agreed_in(node, order, plan);
                bool lacks_track = !track_is_step(plan->track);

                if (said != NULL && plan->open && plan->track == said->track)
                        unit_take_turn(node, plan->track, said->unit, said->turn);
                if (plan->open || said == NULL || !said->open ||
                    (lacks_track && track_is_taken(node, said->track)))
                        continue;
                plan->open = true;
                note_clear(node, plan->ordinal);
                if (lacks_track)
                        agreed_set_track(node, plan,
                                         planted(PLANTED_NUMBERS_ALONE) ? TRACK_STEP + i : said->track,
                                         said->before);
        }
}

void plan_enter(struct node *node, const struct order *order) {
        node->note = NOTE_NONE;
        for (uint32_t i = 0; i < node->n_plans; i++) {
                struct node_plan *plan = &node->plan[i];
                const struct order_plan *said = agreed_in(node, order, plan);
                uint32_t track = said != NULL ? said->track : (uint32_t)TRACK_OPERATION;
                bool has_track = track_is_step(plan->track) && !planted(PLANTED_COUNTS_ALONE);

                plan->open = said != NULL && said->open;
                /* Also where the track stays, and where the plan is still closed: others may have gone on. */
                if ((plan->open || has_track) && !planted(PLANTED_NUMBERS_ALONE))
                        agreed_set_track(node, plan, track, said != NULL ? said->before : 0);
        }
        plan_hear(node, order);
}

static bool is_about_now(const struct node *node, const struct order *order) {
        return node_is_in(node) && generation_equal(order->generation, node->generation);
}

void plan_be_asked(struct node *node, const struct order *order) {
        if (is_about_now(node, order))
                node_act(node, &(struct action){ .kind = ACTION_EXPLAIN,
                                                 .generation = node->generation,
                                                 .number = order->ordinal,
                                                 .index = order->index,
                                                 .note = order->note });
}

bool plan_be_rejected(struct node *node, const struct order *order) {
        if (!is_about_now(node, order))
                return false;
        for (uint32_t i = 0; i < node->n_plans; i++) {
                if (node->plan[i].ordinal != order->ordinal)
                        continue;
                if (track_is_step(node->plan[i].track) || order->stamp < node->plan[i].asked)
                        return false; /* it means an earlier plan of that ordinal */
                node->plan[i] = node->plan[--node->n_plans];
                break;
        }
        note_clear(node, order->ordinal);
        node_act(node, &(struct action){ .kind = ACTION_REJECTED,
                                         .generation = node->generation,
                                         .number = order->ordinal,
                                         .refusal = &order->refusal });
        return true;
}

bool plan_is_closed(const struct node *node, uint32_t track) {
        for (uint32_t i = 0; i < node->n_plans; i++)
                if (node->plan[i].track == track)
                        return !node->plan[i].open;
        return false;
}
