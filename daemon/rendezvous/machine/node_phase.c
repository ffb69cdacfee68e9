/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The phases of a node: the work in each, the end of each, and the orders that lead from one to another. An
 * order to which the phase does not apply is dropped without a word: the node stays with its last answer.
 */
#include <string.h>

#include "rendezvous/machine/node_private.h"

void node_say(struct node *node, uint64_t now, enum node_phase phase, enum report_kind answer) {
        node_set_phase(node, phase, answer);
        report_send(node, now);
}

/* Lets go of the generation: what is open comes to nothing here. */
static void node_let_go(struct node *node, enum node_phase phase, bool behind) {
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                if (behind)
                        unit_give_up(node, which);
                else
                        unit_decide(node, which, 0);
        }
        lane_forget(node);
        node_set_phase(node, phase, ANSWER_REPORT);
        node_abort_engine(node);
}

void node_judge_contact(struct node *node) {
        if (!node_is_in(node))
                return;
        if (node->time.now > node->contact + node->config.times.patience)
                node->suspended = true;
        if (node->time.now > node->contact + node->config.times.abandon)
                node_let_go(node, NODE_LEAVING, true);
}

void node_quit(struct node *node, uint64_t now) {
        now = node_look(node, now);
        if (node_is_in(node))
                node_let_go(node, NODE_LEAVING, true);
        node_advance(node, now);
}

uint64_t node_wake(struct node *node, uint64_t now) {
        now = node_look(node, now);
        node_judge_contact(node);
        return now;
}

/* A member that has said goodbye since the coordinator chose it is not told of its place, and is missing. */
void node_enter(struct node *node) {
        node->suspended = node->held = node->stopping = false;
        node_set_phase(node, NODE_RUNNING, ANSWER_ACK);
        for (uint32_t i = 0; i < node->n; i++) {
                const struct report_member *member = &node->member[i];

                node->missing |= member->in && member->leaving;
                if (member->in && !member->leaving)
                        node_act(node, &(struct action){ .kind = ACTION_GENERATION,
                                                         .generation = node->generation,
                                                         .comm = node->comm,
                                                         .member = member->request.member,
                                                         .rank = member->rank,
                                                         .slot = member->slot,
                                                         .world = node->world,
                                                         .source = node->source,
                                                         .behind = member->behind,
                                                         .number = unit_steps(node),
                                                         .id = member->id,
                                                         .loss = node->loss });
        }
        node_act(node, &(struct action){ .kind = ACTION_ENTERED,
                                         .behind = node->behind,
                                         .torn = node->torn,
                                         .generation = node->generation,
                                         .comm = node->comm,
                                         .world = node->world,
                                         .source = node->source,
                                         .secret = node->secret,
                                         .number = unit_steps(node),
                                         .loss = node->loss });
        node->interrupted = node->torn = false;
        node->loss = (struct membership_loss){ 0 };
}

static bool drained(const struct node *node) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (node->lane[lane].completed < node->cut[lane])
                        return false;
        return true;
}

static void node_fill(struct node *node) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                while (node->lane[lane].launched < node->cut[lane] &&
                       node->lane[lane].launched - node->lane[lane].completed < node->config.window)
                        node_act(node, &(struct action){ .kind = ACTION_LAUNCH,
                                                         .comm = node->comm,
                                                         .generation = node->generation,
                                                         .lane = lane,
                                                         .seq = lane_fill(node, lane),
                                                         .launch = LAUNCH_FILLER });
}

static bool paused(const struct node *node) {
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                const struct track *track = &node->track[which];

                if (track->state == UNIT_COMMITTING || track->state == UNIT_VOIDING)
                        return false;
                if (!unit_empty(node) && (track->state == UNIT_OPEN || unit_ended(track) < node->stop[which]))
                        return false;
        }
        return true;
}

static void be_out(struct node *node, uint64_t now) {
        node->awaits = false;
        node->note = NOTE_NONE;
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        node->world = node->n_gone = 0;
        node->interrupted = node->torn = false;
        node->loss = (struct membership_loss){ 0 };
        node->suspended = node->held = node->stopping = false;
        node_act(node, &(struct action){ .kind = ACTION_OUT,
                                         .generation = node->generation,
                                         .since = own_time_to_driver(&node->time, node->contact) });
        node_say(node, now, NODE_OUT, ANSWER_REPORT);
}

static void be_ended(struct node *node, uint64_t now) {
        node_act(node, &(struct action){ .kind = ACTION_ENDED,
                                         .generation = node->generation,
                                         .end = node->end,
                                         .loss = node->loss });
        node->n = node->n_gone = 0;
        node->world = 0;
        report_send(node, now);
}

/* One report says all that others have to know. */
static void node_go_on(struct node *node, uint64_t now) {
        uint64_t ready = lane_ready(node);

        if (unit_open_more(node))
                report_send(node, now); /* others must be allowed to open it too */
        unit_progress(node);
        bool turns = unit_asks(node);
        if (turns || lane_ready(node) > ready)
                report_send(node, now);
}

void node_advance(struct node *node, uint64_t now) {
        if (node->phase == NODE_RUNNING && !node->suspended)
                node_go_on(node, now);
        if (node->phase == NODE_FILLING && !node->unbuilt)
                node_fill(node);
        if (node->phase == NODE_FILLING && node->answer != ANSWER_DRAINED && drained(node)) {
                node->filling = now - node->cut_at;
                node_say(node, now, NODE_FILLING, ANSWER_DRAINED);
        } else if (node->phase == NODE_SETTLING && unit_idle(node))
                node_say(node, now, NODE_SETTLED, ANSWER_SETTLED);
        else if (node->phase == NODE_RUNNING && node->stopping && node->answer != ANSWER_PAUSED &&
                 paused(node))
                node_say(node, now, NODE_RUNNING, ANSWER_PAUSED);
        else if (node->phase == NODE_LEAVING && unit_idle(node) && node->comm.number == 0)
                be_out(node, now);
        else if (node->phase == NODE_ENDED && unit_idle(node) && node->comm.number == 0 && node->world > 0)
                be_ended(node, now);
}

/* ---- orders ---- */

static uint64_t mark_of(const struct order *order, uint32_t which) {
        return which < order->n_tracks ? order->mark[which] : 0;
}

/* This is for a node outside. One in a generation that others have left is outside, too. The coordinator
 * takes no member before its node has answered. */
static void order_collect(struct node *node, uint64_t now, const struct order *order) {
        if (node_is_in(node) && generation_compare(order->generation, node->generation) > 0)
                node_let_go(node, NODE_LEAVING, true);
        else
                report_send(node, now);
}

static void order_run(struct node *node, const struct order *order) {
        if (node->phase != NODE_RUNNING || !generation_equal(order->generation, node->generation))
                return;
        node->held = node->stopping = false;
        node->answer = ANSWER_REPORT;
        node_drop_older(node);
}

static void order_hold(struct node *node, uint64_t now) {
        if (node->phase != NODE_RUNNING)
                return;
        node_drop_older(node); /* all have entered, or it would not be said; RUN may have been lost */
        node->held = true;
        node->stopping = false;
        for (uint32_t which = 0; which < node->n_tracks; which++)
                node->stop[which] = unit_opened(node, which);
        node_say(node, now, NODE_RUNNING, ANSWER_HELD);
}

static void order_stop(struct node *node, uint64_t now, const struct order *order) {
        if (node->phase != NODE_RUNNING || !node->held)
                return;
        for (uint32_t which = 0; which < node->n_tracks; which++)
                node->stop[which] = mark_of(order, which); /* no other track is open in this generation */
        node->stopping = true;
        node->answer = ANSWER_REPORT;
        node_advance(node, now);
}

/* Notes the loss that the coordinator names. The first member lost is the one that counts. */
static void order_note_loss(struct node *node, const struct order *order) {
        if (order->loss.cause != 0 && node->loss.member == 0)
                node->loss = order->loss;
}

static void order_freeze(struct node *node, uint64_t now, const struct order *order) {
        if (!node_is_in(node))
                return;
        order_note_loss(node, order);
        if (node->phase != NODE_BUILDING && !node->interrupted && node->loss.cause != 0) {
                node->interrupted = true;
                node_act(node, &(struct action){ .kind = ACTION_INTERRUPTED,
                                                 .generation = node->generation,
                                                 .loss = node->loss,
                                                 .end = order->end });
        }
        node->held = node->stopping = false;
        node->filling = 0;
        lane_forget(node);
        node_say(node, now, NODE_FROZEN, ANSWER_FROZEN);
}

static void order_cut(struct node *node, uint64_t now, const struct order *order) {
        if (node->phase != NODE_FROZEN || node->comm.number == 0)
                return;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (order->seq[lane] < node->lane[lane].launched && !planted(PLANTED_CUT_TOO_LOW))
                        return;
        memcpy(node->cut, order->seq, sizeof(node->cut));
        node->cut_at = now;
        node_set_phase(node, NODE_FILLING, ANSWER_REPORT);
}

static void order_abort(struct node *node, uint64_t now) {
        if (node->phase != NODE_FROZEN && node->phase != NODE_FILLING)
                return;
        if (node->comm.number == 0) {
                node_say(node, now, NODE_ABORTED, ANSWER_ABORTED);
                return;
        }
        node_set_phase(node, NODE_ABORTING, ANSWER_REPORT);
        node_abort_engine(node);
}

static void order_verdict(struct node *node, const struct order *order) {
        if (node->phase != NODE_ABORTED && (node->phase != NODE_FILLING || node->answer != ANSWER_DRAINED))
                return;
        for (uint32_t which = 0; which < node->n_tracks; which++)
                if (mark_of(order, which) < node->track[which].committed ||
                    (mark_of(order, which) > node->track[which].prepared && !unit_alone(node)))
                        return;
        order_note_loss(node, order);
        node_set_phase(node, NODE_SETTLING, ANSWER_REPORT);
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                uint64_t prepared = node->track[which].prepared, mark = mark_of(order, which);

                unit_decide(node, which,
                            mark < prepared ? mark : prepared); /* less: alone, and spoilt meanwhile */
        }
}

static void build(struct node *node, const struct order *order) {
        node_drop_older(node);
        node->old_comm = node->comm;
        node->comm = order->comm;
        node->unbuilt = true;
        nodeset_clear(node->links);
        lane_reset(node);
        node_act(node, &(struct action){ .kind = ACTION_BUILD, .comm = node->comm, .set = node->set });
}

/* Its own members may all be new: they count plans like those of other nodes. */
static void take_kept(struct node *node, const struct order *order) {
        if (order->next_plan > node->next_plan)
                node->next_plan = order->next_plan;
        node->n_kept = 0;
        for (uint32_t i = 0; i < order->n_plans && node->n_kept < node->config.room.tracks; i++)
                if (order->plan[i].kept)
                        node->kept[node->n_kept++] = order->plan[i].ordinal;
}

static void order_newgen(struct node *node, uint64_t now, const struct order *order) {
        if (node->phase != NODE_SETTLED && node->phase != NODE_OUT)
                return;
        if (generation_compare(order->generation, node->generation) <= 0 ||
            order->n_tracks > node->config.room.tracks)
                return;
        if (node->phase == NODE_OUT && !order->torn)
                return; /* the others go on as if nothing had happened, and this node has left meanwhile */
        if (!generation_equal(order->comm, order->generation) && !generation_equal(order->comm, node->comm))
                return; /* the others keep the communicator that this node has let go of */

        node->generation = order->generation;
        node->world = order->world;
        node->source = order->source;
        node->secret = order->secret;
        take_kept(node, order);
        node->behind = order->behind;
        node->unsynced |= order->behind;
        node->torn |= order->torn; /* more, if this one is not the first order since its last generation */
        node->history = order->history;
        nodeset_copy(node->set, order_set(order));
        node->awaits = false;
        node->away = false; /* it stays until it has entered this one */
        order_note_loss(node, order);
        node_use_tracks(node, order->n_tracks);
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                node->track[which].committed = mark_of(order, which);
                node->track[which].mismatches = 0;
                unit_reset(&node->track[which]);
        }
        report_enter(node, order);
        plan_enter(node, order);
        node_set_phase(node, NODE_BUILDING, ANSWER_REPORT);
        if (!generation_equal(order->comm, node->comm))
                build(node, order);
        if (node->unbuilt)
                return; /* the communicator of this generation, or of one before it that has had a loss */
        node_enter(node);
        report_send(node, now);
}

static void order_end(struct node *node, const struct order *order) {
        if (node->phase == NODE_ENDED)
                return;
        node->end = order->end;
        node->awaits = false;
        order_note_loss(node, order);
        node_let_go(node, NODE_ENDED, false);
        if (node->world == 0)
                node->world = 1; /* outside, and to be shown it all the same */
}

void order_carry_out(struct node *node, uint64_t now, const struct order *order) {
        switch (order->kind) {
        case ORDER_COLLECT: order_collect(node, now, order); break;
        case ORDER_RUN: order_run(node, order); break;
        case ORDER_HOLD: order_hold(node, now); break;
        case ORDER_STOP: order_stop(node, now, order); break;
        case ORDER_FREEZE: order_freeze(node, now, order); break;
        case ORDER_CUT: order_cut(node, now, order); break;
        case ORDER_ABORT: order_abort(node, now); break;
        case ORDER_VERDICT: order_verdict(node, order); break;
        case ORDER_NEWGEN: order_newgen(node, now, order); break;
        case ORDER_END: order_end(node, order); break;
        case ORDER_FENCE:
                if (node_is_in(node))
                        node_let_go(node, NODE_LEAVING, true);
                break;
        default: break;
        }
}
