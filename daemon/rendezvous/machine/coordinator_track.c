/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans and their tracks. Each plan that any node has keeps its track until no node has it any more, whatever
 * becomes of generations and coordinators. Its steps may begin once all nodes of the generation have it.
 */
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

const struct report_plan *tracks_said_of(const struct coordinator *c, uint32_t node, uint32_t ordinal) {
        for (uint32_t i = 0; i < c->node[node].n_plans && c->node[node].known; i++)
                if (coordinator_plans(c, node)[i].ordinal == ordinal)
                        return &coordinator_plans(c, node)[i];
        return NULL;
}

static bool anybody_has(const struct coordinator *c, uint32_t ordinal) {
        for (uint32_t node = 0; node < c->top; node++)
                if (tracks_said_of(c, node, ordinal) != NULL)
                        return true;
        return false;
}

struct track_owner *tracks_find(const struct coordinator *c, uint32_t ordinal) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++)
                if (c->owner[track].held && c->owner[track].ordinal == ordinal)
                        return &c->owner[track];
        return NULL;
}

static void owner_take(struct coordinator *c, uint32_t track, const struct report_plan *plan) {
        c->owner[track] = (struct track_owner){
                .digest = plan->digest,
                .ordinal = plan->ordinal,
                .before = plan->before,
                .held = true,
                .begun = plan->open,
        };
        for (; c->n_tracks <= track; c->n_tracks++)
                c->stop[c->n_tracks] = c->verdict[c->n_tracks] = c->highest[c->n_tracks] = 0;
}

static void owner_set_turn(struct coordinator *c, struct track_owner *owner, uint64_t unit, uint64_t turn) {
        owner->unit = unit;
        owner->turn = turn;
        if (turn > c->turn)
                c->turn = turn;
}

/* As it is in this generation, through another coordinator. */
static void owner_go_on(struct coordinator *c, struct track_owner *owner, const struct report_plan *plan) {
        owner->open |= plan->open;
        owner->begun |= plan->open;
        if (plan->turn > owner->turn && !planted(PLANTED_FORGETS_TURNS))
                owner_set_turn(c, owner, plan->unit, plan->turn);
}

/* Units of the track, by whatever plans. Nodes that have not entered the generation yet will count from its
 * mark; where no node is left of any, each counts for itself. */
static uint64_t committed_on(const struct coordinator *c, uint32_t track) {
        bool anew = c->tally.survivors == 0;
        uint64_t committed = track < c->n_tracks ? c->verdict[track] : 0;

        for (uint32_t node = 0; node < c->top; node++)
                if ((anew ? c->node[node].known : coordinator_survives(c, node)) &&
                    coordinator_track(c, node, track)->committed > committed)
                        committed = coordinator_track(c, node, track)->committed;
        return committed;
}

/* If a node outside has it, the generation may have come further on the track without steps of the plan. */
static void owner_take_from(struct coordinator *c, uint32_t node, const struct report_plan *plan) {
        uint64_t said = coordinator_track(c, node, plan->track)->committed;

        owner_take(c, plan->track, plan);
        if (!coordinator_survives(c, node) && c->tally.survivors > 0 && committed_on(c, plan->track) > said)
                c->owner[plan->track].before += committed_on(c, plan->track) - said;
}

/* Another coordinator has given it; what the generation's nodes know of it comes first. */
static void owner_learn(struct coordinator *c, bool of_survivors) {
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t i = 0; i < c->node[node].n_plans && c->node[node].known &&
                                     coordinator_survives(c, node) == of_survivors;
                     i++) {
                        const struct report_plan *plan = &coordinator_plans(c, node)[i];
                        struct track_owner *owner = tracks_find(c, plan->ordinal);

                        if (owner == NULL && track_is_step(plan->track) &&
                            plan->track < c->config.room.tracks && !c->owner[plan->track].held) {
                                owner_take_from(c, node, plan);
                                owner = &c->owner[plan->track];
                        }
                        if (owner != NULL && of_survivors &&
                            generation_equal(c->node[node].generation, c->current))
                                owner_go_on(c, owner, plan);
                }
}

static void owner_give(struct coordinator *c, const struct report_plan *plan) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++)
                if (!c->owner[track].held) {
                        owner_take(c, track, plan);
                        c->owner[track].before = committed_on(c, track);
                        return;
                }
}

static bool all_have(const struct coordinator *c, uint32_t ordinal) {
        for (uint32_t node = 0; node < c->config.room.nodes; node++)
                if (coordinator_survives(c, node) && tracks_said_of(c, node, ordinal) == NULL)
                        return false;
        return c->tally.survivors > 0;
}

/* A plan that has begun is compared by its digest alone: a loss does not end it any more. */
static bool owner_is_alike(const struct track_owner *owner, const struct report_plan *a,
                           const struct report_plan *b) {
        return a->digest == b->digest && (owner->begun || a->voids == b->voids);
}

/* The node whose plan counts: where it was begun before, one that has it as it was then. */
static uint32_t owner_reference(const struct coordinator *c, const struct track_owner *owner) {
        for (uint32_t node = 0; node < c->config.room.nodes; node++) {
                const struct report_plan *said =
                        coordinator_survives(c, node) ? tracks_said_of(c, node, owner->ordinal) : NULL;

                if (said != NULL && (!owner->begun || said->digest == owner->digest))
                        return node;
        }
        return LIMIT_NODES;
}

/* A node that has it in another way; LIMIT_NODES: none. */
static uint32_t owner_find_other(const struct coordinator *c, const struct track_owner *owner,
                                 uint32_t reference) {
        for (uint32_t node = 0; node < c->config.room.nodes && reference != LIMIT_NODES; node++) {
                const struct report_plan *said =
                        coordinator_survives(c, node) ? tracks_said_of(c, node, owner->ordinal) : NULL;

                if (said != NULL &&
                    !owner_is_alike(owner, tracks_said_of(c, reference, owner->ordinal), said))
                        return node;
        }
        return LIMIT_NODES;
}

bool tracks_find_difference(const struct coordinator *c, uint32_t *ret_ordinal, uint32_t ret_nodes[2]) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++) {
                const struct track_owner *owner = &c->owner[track];

                if (!owner->held || owner->open || coordinator_rejection(c, owner->ordinal) != NULL)
                        continue;
                ret_nodes[0] = owner_reference(c, owner);
                ret_nodes[1] = owner_find_other(c, owner, ret_nodes[0]);
                *ret_ordinal = owner->ordinal;
                if (ret_nodes[1] != LIMIT_NODES)
                        return true;
        }
        return false;
}

/* All nodes of the generation have the same. */
static bool owner_is_agreed(const struct coordinator *c, const struct track_owner *owner) {
        if (!all_have(c, owner->ordinal) || coordinator_rejection(c, owner->ordinal) != NULL)
                return false;
        return owner_find_other(c, owner, owner_reference(c, owner)) == LIMIT_NODES;
}

bool tracks_assign(struct coordinator *c) {
        bool opened = false;

        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++)
                c->owner[track].held &= c->owner[track].held && anybody_has(c, c->owner[track].ordinal);
        owner_learn(c, true);
        owner_learn(c, false);
        for (uint32_t node = 0; node < c->top; node++)
                for (uint32_t i = 0; i < c->node[node].n_plans && c->node[node].known; i++)
                        if (tracks_find(c, coordinator_plans(c, node)[i].ordinal) == NULL)
                                owner_give(c, &coordinator_plans(c, node)[i]);
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++) {
                struct track_owner *owner = &c->owner[track];

                if (!owner->held || owner->open || !owner_is_agreed(c, owner))
                        continue;
                owner->open = owner->begun = opened = true;
        }
        return opened;
}

void tracks_begin(struct coordinator *c) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++) {
                c->owner[track].open = false;
                if (!planted(PLANTED_KEEPS_TURNS))
                        c->owner[track].unit = c->owner[track].turn = 0;
        }
        tracks_assign(c);
}

void tracks_keep(struct coordinator *c, bool anew) {
        c->next_plan = 0;
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++)
                c->owner[track].kept = false;
        for (uint32_t node = 0; node < c->top; node++) {
                if (anew ? !c->node[node].known : !coordinator_survives(c, node))
                        continue;
                if (c->node[node].next_plan > c->next_plan)
                        c->next_plan = c->node[node].next_plan;
                for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++) {
                        struct track_owner *owner = &c->owner[track];
                        const struct report_plan *said =
                                owner->held ? tracks_said_of(c, node, owner->ordinal) : NULL;

                        owner->kept |= said != NULL && track_is_step(said->track);
                }
        }
}

/* On all nodes members have given everything to the unit: it waits for lower turns only. */
static bool all_are_full(const struct coordinator *c, struct track_owner *owner, uint64_t unit) {
        uint32_t nodes = c->config.room.nodes;

        for (uint32_t i = 0, node = owner->awaited; i < nodes; i++, node = (node + 1) % nodes) {
                const struct report_plan *said;

                if (!coordinator_survives(c, node))
                        continue;
                said = tracks_said_of(c, node, owner->ordinal);
                if (said != NULL && said->unit == unit &&
                    generation_equal(c->node[node].generation, c->current))
                        continue;
                owner->awaited = node;
                return false;
        }
        return c->tally.survivors > 0;
}

bool tracks_give_turns(struct coordinator *c, const struct report *report) {
        bool given = false;

        for (uint32_t i = 0; i < report->n_plans; i++) {
                struct track_owner *owner =
                        report->plan[i].unit > 0 ? tracks_find(c, report->plan[i].ordinal) : NULL;

                if (owner == NULL || report->plan[i].unit <= owner->unit ||
                    !all_are_full(c, owner, report->plan[i].unit))
                        continue;
                owner_set_turn(c, owner, report->plan[i].unit, c->turn + 1);
                given = true;
        }
        return given;
}

static bool plan_equal(const struct report_plan *a, const struct report_plan *b) {
        return a->digest == b->digest && a->ordinal == b->ordinal && a->track == b->track &&
               a->open == b->open && a->before == b->before && a->voids == b->voids;
}

bool tracks_note(struct coordinator *c, const struct report *report) {
        struct reporter *reporter = &c->node[report->from];
        struct report_plan *plans = coordinator_plans(c, report->from);
        bool same = reporter->n_plans == report->n_plans;

        for (uint32_t i = 0; i < report->n_plans && same; i++)
                same = plan_equal(&plans[i], &report->plan[i]);
        reporter->n_plans = report->n_plans;
        memcpy(plans, report->plan, report->n_plans * sizeof(*plans));
        return !same;
}

void tracks_fill_order(const struct coordinator *c, struct order *order) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++)
                if (c->owner[track].held)
                        order->plan[order->n_plans++] =
                                (struct order_plan){ .digest = c->owner[track].digest,
                                                     .unit = c->owner[track].unit,
                                                     .turn = c->owner[track].turn,
                                                     .ordinal = c->owner[track].ordinal,
                                                     .track = track,
                                                     .open = c->owner[track].open,
                                                     .kept = c->owner[track].kept,
                                                     .before = c->owner[track].before };
}

/* One of those that lack it; LIMIT_NODES if one of them has members, which may bring it yet. */
static uint32_t ignorant_of(const struct coordinator *c, uint32_t ordinal, struct nodeset full) {
        uint32_t found = LIMIT_NODES;

        for (uint32_t node = 0; node < c->config.room.nodes; node++) {
                if (!coordinator_survives(c, node) || tracks_said_of(c, node, ordinal) != NULL)
                        continue;
                if (nodeset_has(full, node))
                        return LIMIT_NODES;
                found = node;
        }
        return found;
}

uint32_t tracks_find_ignorant(const struct coordinator *c, struct nodeset full) {
        for (uint32_t track = TRACK_STEP; track < c->config.room.tracks; track++) {
                uint32_t node = LIMIT_NODES;

                if (c->owner[track].held && !c->owner[track].open)
                        node = ignorant_of(c, c->owner[track].ordinal, full);
                if (node != LIMIT_NODES)
                        return node;
        }
        return LIMIT_NODES;
}
