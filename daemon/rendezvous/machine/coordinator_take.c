/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking over: a coordinator that has just begun knows nothing. It hears every node before it judges any, and
 * goes on from the latest generation that is reported. If all of its nodes run, they notice nothing;
 * otherwise the coordinator freezes them, and decisions that any of them has made already count.
 */
#include <string.h>

#include "rendezvous/machine/coordinator_private.h"

#define APART 0xffffffu /* mask: terms that are left out */

static void take_begin(struct coordinator *c, uint64_t now, uint64_t round) {
        membership_init(&c->membership, c->config.name, c->config.incarnation);
        coordinator_set_stage(c, STAGE_HEARING);
        c->round = c->hearing = round;
        c->begun = c->since = now;
        c->growing = c->abort = false;
        c->current = c->comm = (struct generation){ 0 };
        c->empty_since = c->unbuilt = 0;
        c->n_waits = 0;
        coordinator_set_nodes(c, (struct nodeset){ 0 });
        c->turn = 0;
        memset(c->go, 0, sizeof(c->go));
        c->history = (struct tag){ 0 };
        c->end = JOB_END_NONE;
        memset(c->owner, 0, c->config.room.tracks * sizeof(*c->owner));
}

/* Where a node was in a later term than this run can have from its own disk, the state there was lost, or an
 * older copy of it was put back. Another such run may follow the same term, so the next one is apart from it
 * by what tells the runs apart. */
static uint64_t take_term(const struct coordinator *c, uint64_t former) {
        uint64_t floor = planted(PLANTED_FORGETS_TERMS) ? 0 : c->config.floor;

        return (former > floor ? former + (floor & APART) : floor) + 1;
}

void take_over(struct coordinator *c, uint64_t now, uint64_t former) {
        coordinator_hear_anew(c);
        take_begin(c, now, 1);
        c->term = take_term(c, former);
        c->entering = 0;
        c->top = 0;
}

/* Nothing of what nodes have said counts any more, but where they are, and which of them are away. */
void take_again(struct coordinator *c, uint64_t now) {
        for (uint32_t node = 0; node < c->top; node++)
                c->node[node] = (struct reporter){ .instance = c->node[node].instance,
                                                   .stamp = c->node[node].stamp,
                                                   .away = c->node[node].away,
                                                   .renewed = c->node[node].renewed };
        take_begin(c, now, c->round + 1);
        c->entering = c->hearing;
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].instance > 0)
                        coordinator_say_to(c, node);
}

/* Finds a node that speaks for the latest generation; LIMIT_NODES: no node is in any. */
static uint32_t find_latest(const struct coordinator *c) {
        uint32_t best = LIMIT_NODES;

        for (uint32_t node = 0; node < c->top; node++) {
                if (!c->node[node].known || c->node[node].world == 0)
                        continue;
                if (best == LIMIT_NODES ||
                    generation_compare(c->node[node].generation, c->node[best].generation) > 0)
                        best = node;
        }
        return best;
}

static bool has_answered(const struct coordinator *c, uint32_t node) {
        return c->node[node].known && c->node[node].term == c->term && c->node[node].round >= c->hearing;
}

static bool all_have_answered(const struct coordinator *c, struct nodeset nodes) {
        for (uint32_t node = 0; node < c->config.room.nodes; node++)
                if (nodeset_has(nodes, node) && !has_answered(c, node))
                        return false;
        return true;
}

static bool is_in(const struct coordinator *c, uint32_t node, struct generation generation) {
        return c->node[node].known && c->node[node].world > 0 &&
               generation_equal(c->node[node].generation, generation);
}

/* The nodes of the speaker's generation: those that it names, and those that say that they belong to it. */
static void find_nodes(const struct coordinator *c, uint32_t speaker, struct nodeset nodes) {
        nodeset_copy(nodes, coordinator_set_of(c, speaker));
        for (uint32_t node = 0; node < c->top; node++)
                if (is_in(c, node, c->node[speaker].generation))
                        nodeset_add(nodes, node);
}

/* Returns whether all nodes of the generation have been heard. */
static bool all_are_heard(const struct coordinator *c, uint32_t latest) {
        struct nodeset nodes = NODESET_SCRATCH;

        find_nodes(c, latest, nodes);
        return all_have_answered(c, nodes);
}

/* A job of one node has been heard as soon as any node has. */
static bool any_has_answered(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++)
                if (has_answered(c, node))
                        return true;
        return false;
}

static bool any_awaited(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top && !planted(PLANTED_AWAITS_NO_NODE); node++)
                if (c->node[node].known && c->node[node].awaits)
                        return true;
        return false;
}

static bool any_renewed(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].known && c->node[node].renewed)
                        return true;
        return false;
}

/* For how long nodes are heard: members on their way back take longer than the answer of a node that
 * lives. */
static uint64_t take_patience(const struct coordinator *c) {
        bool away = any_awaited(c);

        for (uint32_t node = 0; node < c->top; node++)
                away |= c->node[node].away;
        return away ? c->config.times.abandon : c->config.times.death;
}

/* A node was in a later generation than all that are in one now: what these hold is old. */
static bool superseded(const struct coordinator *c, uint32_t latest) {
        for (uint32_t node = 0; node < c->top; node++)
                if (c->node[node].known &&
                    generation_compare(c->node[node].generation, c->node[latest].generation) > 0)
                        return true;
        return false;
}

/* This run has made a later generation than all that answer have been in, and none of its nodes answers: what
 * was committed in it is not known here. If one of them answers without having been in it, nothing was. */
static bool unknown(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++)
                if (has_answered(c, node) && (nodeset_has(c->made_set, node) ||
                                              generation_compare(c->node[node].generation, c->made) >= 0))
                        return false;
        return c->made.number > 0;
}

/* The members of the generation, with their ranks; the others will ask for a place like any that comes. */
static void take_restore(struct coordinator *c, uint64_t now, uint32_t world) {
        for (uint32_t i = 0; i < membership_all(&c->membership); i++) {
                struct seat *seat = &c->membership.seat[i];

                if (seat->state != SEAT_CLAIMS)
                        continue;
                if (!generation_equal(c->node[seat->request.node].generation, c->current))
                        seat_set_state(seat, SEAT_ASKS);
                else if (!seat->behind && tag_compare(&seat->tag, &c->history) > 0)
                        c->history = seat->tag;
        }
        for (uint32_t node = 0; node < c->top; node++)
                if (coordinator_survives(c, node) && tag_compare(&c->node[node].history, &c->history) > 0)
                        c->history = c->node[node].history;
        membership_restore(&c->membership, c->current.number, world,
                           generation_equal(c->abandoned_in, c->current) ? member_abandoned(c)
                                                                         : (struct nodeset){ 0 },
                           now);
}

static bool everybody_runs(const struct coordinator *c) {
        for (uint32_t node = 0; node < c->top; node++) {
                const struct reporter *reporter = &c->node[node];

                if (nodeset_has(c->set, node) &&
                    (!reporter->running || !generation_equal(reporter->generation, c->current) ||
                     !generation_equal(reporter->comm, c->comm)))
                        return false;
        }
        return !loss_found(c);
}

/* Allows all nodes the launches of which any node has heard, before any other launch. */
static void take_run(struct coordinator *c, uint64_t now) {
        launches_learn(c);
        coordinator_give(c, now, STAGE_RUNNING);
        if (launches_agree(c))
                coordinator_say(c, now);
}

static void take_adopt(struct coordinator *c, uint64_t now, uint32_t latest) {
        const struct reporter *speaker = &c->node[latest];
        struct nodeset nodes = NODESET_SCRATCH;

        c->current = speaker->generation;
        c->comm = speaker->comm;
        find_nodes(c, latest, nodes);
        coordinator_set_nodes(c, nodes);
        for (uint32_t node = 0; node < c->config.room.nodes; node++)
                if (nodeset_has(c->set, node) && (!has_answered(c, node) || c->node[node].world == 0))
                        coordinator_lose_node(c, node);
        for (uint32_t node = 0; node < c->top; node++)
                c->node[node].renewed = false; /* none is waited for any longer */
        take_restore(c, now, speaker->world);
        tracks_assign(c);
        if (everybody_runs(c))
                take_run(c, now);
        else
                loss_begin(c, now);
        member_admit_all(c, now);
}

/* Once every node that it could concern has been heard, or is as good as dead. */
void take_advance(struct coordinator *c, uint64_t now) {
        uint32_t latest = find_latest(c);
        bool late = now > c->begun + take_patience(c) || planted(PLANTED_HASTY);

        if (late && unknown(c)) {
                form_end(c, now, JOB_END_NO_STATE);
        } else if (any_awaited(c) && c->ending != JOB_END_NONE) {
                c->membership.loss =
                        (struct membership_loss){ .cause = c->cause }; /* whatever they would say */
                form_end(c, now, c->ending);
        } else if ((any_awaited(c) || any_renewed(c)) && !late) {
                /* Their reports may be all that there is. */
        } else if (latest < LIMIT_NODES && !superseded(c, latest) && (late || all_are_heard(c, latest))) {
                take_adopt(c, now, latest);
        } else if (late ||
                   ((c->config.alone || c->config.first) && any_has_answered(c) && latest == LIMIT_NODES)) {
                member_begin_anew(c, now);
        }
}
