/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node carries out orders: the highest numbered one of the highest term. What it was told before is void then, what comes
 * late is dropped. A node that hears of no coordinator holds still first, and leaves its generation after a longer time;
 * it never makes a smaller world of its own.
 */
#include "rendezvous/node.h"

#include <string.h>

#include "rendezvous/node_private.h"

void node_init(struct node *node, const struct node_config *config, uint64_t now, const struct outlet *out) {
        memset(node, 0, offsetof(struct node, member));
        node->config = *config;
        node->out = *out;
        node->contact = now;
        node->stamp = now;
        node->answer = ANSWER_REPORT;
        for (unsigned kind = 0; kind < N_TRACKS; kind++)
                node->track[kind].vote = -1;
}

void node_act(const struct node *node, const struct action *action) {
        node->out.act(node->out.data, action);
}

static void set_phase(struct node *node, enum node_phase phase, enum message_kind answer) {
        node->phase = phase;
        node->answer = answer;
}

static void say(struct node *node, uint64_t now, enum node_phase phase, enum message_kind answer) {
        set_phase(node, phase, answer);
        report_send(node, now);
}

static void abort_engine(struct node *node) {
        if (node->old_comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_DROP, .comm = node->old_comm });
        node->old_comm = (struct generation){ 0 };
        if (node->comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_ABORT, .comm = node->comm });
}

/* Lets go of the generation: what is open comes to nothing here. */
static void leave(struct node *node, enum node_phase phase, bool behind) {
        for (unsigned kind = 0; kind < N_TRACKS; kind++) {
                if (behind)
                        unit_give_up(node, kind);
                else
                        unit_decide(node, kind, 0);
        }
        set_phase(node, phase, ANSWER_REPORT);
        abort_engine(node);
}

void node_wake(struct node *node, uint64_t now) {
        if (!node_is_in(node))
                return;
        if (now > node->contact + node->config.times.patience)
                node->suspended = true;
        if (now > node->contact + node->config.times.abandon)
                leave(node, NODE_LEAVING, true);
}

static void enter(struct node *node) {
        node->suspended = node->held = node->stopping = false;
        set_phase(node, NODE_RUNNING, ANSWER_ACK);
        for (uint32_t i = 0; i < node->n; i++) {
                const struct message_member *member = &node->member[i];

                if (member->in)
                        node_act(node, &(struct action){
                                .kind = ACTION_GENERATION, .generation = node->generation, .set = node->set,
                                .comm = node->comm, .member = member->request.member, .rank = member->rank,
                                .slot = member->slot, .world = node->world, .source = node->source,
                                .behind = member->behind, .number = node->track[TRACK_STEP].committed });
        }
}

static bool drained(const struct node *node) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (node->lane[lane].completed < node->cut[lane])
                        return false;
        return true;
}

static void fill(struct node *node) {
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                while (node->lane[lane].launched < node->cut[lane] &&
                       node->lane[lane].launched - node->lane[lane].completed < node->config.window)
                        node_act(node, &(struct action){ .kind = ACTION_LAUNCH, .comm = node->comm, .set = node->set,
                                                         .generation = node->generation, .lane = lane,
                                                         .seq = ++node->lane[lane].launched,
                                                         .launch = LAUNCH_FILLER });
}

static bool paused(const struct node *node) {
        for (unsigned kind = 0; kind < N_TRACKS; kind++) {
                const struct track *track = &node->track[kind];

                if (track->state == UNIT_COMMITTING || track->state == UNIT_VOIDING)
                        return false;
                if (!unit_empty(node) && (track->state == UNIT_OPEN || track->committed < node->stop[kind]))
                        return false;
        }
        return true;
}

static void be_out(struct node *node, uint64_t now) {
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        node->world = 0;
        node->suspended = node->held = node->stopping = false;
        node_act(node, &(struct action){ .kind = ACTION_OUT, .generation = node->generation, .since = node->contact });
        say(node, now, NODE_OUT, ANSWER_REPORT);
}

static void be_ended(struct node *node, uint64_t now) {
        node_act(node, &(struct action){ .kind = ACTION_ENDED, .generation = node->generation, .end = node->end });
        node->n = 0;
        node->world = 0;
        report_send(node, now);
}

void node_advance(struct node *node, uint64_t now) {
        unit_progress(node);
        if (node->phase == NODE_FILLING)
                fill(node);
        if (node->phase == NODE_FILLING && node->answer != ANSWER_DRAINED && drained(node))
                say(node, now, NODE_FILLING, ANSWER_DRAINED);
        else if (node->phase == NODE_SETTLING && unit_idle(node))
                say(node, now, NODE_SETTLED, ANSWER_SETTLED);
        else if (node->phase == NODE_RUNNING && node->stopping && node->answer != ANSWER_PAUSED && paused(node))
                say(node, now, NODE_RUNNING, ANSWER_PAUSED);
        else if (node->phase == NODE_LEAVING && unit_idle(node) && node->comm.number == 0)
                be_out(node, now);
        else if (node->phase == NODE_ENDED && unit_idle(node) && node->comm.number == 0 && node->world > 0)
                be_ended(node, now);
}

/* The orders. Each returns without a word if the node is not in a phase to which it applies: it stays with its last answer. */

/* This is for who is outside. Whoever is in a generation that others have left behind is, too. */
static void order_collect(struct node *node, const struct message *order) {
        if (node_is_in(node) && generation_compare(order->generation, node->generation) > 0)
                leave(node, NODE_LEAVING, true);
}

static void order_run(struct node *node, const struct message *order) {
        if (node->phase != NODE_RUNNING || !generation_equal(order->generation, node->generation))
                return;
        node->held = node->stopping = false;
        node->answer = ANSWER_REPORT;
        if (node->old_comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_DROP, .comm = node->old_comm });
        node->old_comm = (struct generation){ 0 };
}

static void order_hold(struct node *node, uint64_t now) {
        if (node->phase != NODE_RUNNING)
                return;
        node->held = true;
        node->stopping = false;
        for (unsigned kind = 0; kind < N_TRACKS; kind++)
                node->stop[kind] = unit_opened(node, kind);
        say(node, now, NODE_RUNNING, ANSWER_HELD);
}

static void order_stop(struct node *node, uint64_t now, const struct message *order) {
        if (node->phase != NODE_RUNNING || !node->held)
                return;
        memcpy(node->stop, order->mark, sizeof(node->stop));
        node->stopping = true;
        node->answer = ANSWER_REPORT;
        node_advance(node, now);
}

static void order_freeze(struct node *node, uint64_t now) {
        if (!node_is_in(node))
                return;
        node->held = node->stopping = false;
        say(node, now, NODE_FROZEN, ANSWER_FROZEN);
}

static void order_cut(struct node *node, const struct message *order) {
        if (node->phase != NODE_FROZEN || node->comm.number == 0)
                return;
        for (uint32_t lane = 0; lane < node->config.n_lanes; lane++)
                if (order->seq[lane] < node->lane[lane].launched && !planted(PLANTED_CUT_TOO_LOW))
                        return;
        memcpy(node->cut, order->seq, sizeof(node->cut));
        set_phase(node, NODE_FILLING, ANSWER_REPORT);
}

static void order_abort(struct node *node, uint64_t now) {
        if (node->phase != NODE_FROZEN && node->phase != NODE_FILLING)
                return;
        if (node->comm.number == 0) {
                say(node, now, NODE_ABORTED, ANSWER_ABORTED);
                return;
        }
        set_phase(node, NODE_ABORTING, ANSWER_REPORT);
        abort_engine(node);
}

static void order_verdict(struct node *node, const struct message *order) {
        if (node->phase != NODE_ABORTED && (node->phase != NODE_FILLING || node->answer != ANSWER_DRAINED))
                return;
        for (unsigned kind = 0; kind < N_TRACKS; kind++)
                if (order->mark[kind] < node->track[kind].committed || order->mark[kind] > node->track[kind].prepared)
                        return;
        set_phase(node, NODE_SETTLING, ANSWER_REPORT);
        for (unsigned kind = 0; kind < N_TRACKS; kind++)
                unit_decide(node, kind, order->mark[kind]);
}

static void build(struct node *node, const struct message *order) {
        node->old_comm = node->comm;
        node->comm = order->comm;
        memset(node->lane, 0, sizeof(node->lane));
        set_phase(node, NODE_BUILDING, ANSWER_REPORT);
        node_act(node, &(struct action){ .kind = ACTION_BUILD, .comm = node->comm, .set = node->set });
}

static void order_newgen(struct node *node, const struct message *order) {
        if (node->phase != NODE_SETTLED && node->phase != NODE_OUT)
                return;
        if (generation_compare(order->generation, node->generation) <= 0)
                return;
        node->generation = order->generation;
        node->world = order->world;
        node->source = order->source;
        node->history = order->history;
        node->set = order->set;
        node->links = 0;
        for (unsigned kind = 0; kind < N_TRACKS; kind++) {
                node->track[kind].committed = order->mark[kind];
                unit_reset(&node->track[kind]);
        }
        report_enter(node, order);
        if (!generation_equal(order->comm, node->comm))
                build(node, order);
        else
                enter(node);
}

static void order_end(struct node *node, const struct message *order) {
        if (node->phase == NODE_ENDED)
                return;
        node->end = order->end;
        leave(node, NODE_ENDED, false);
        if (node->world == 0)
                node->world = 1;        /* outside, and to be told all the same */
}

static void carry_out(struct node *node, uint64_t now, const struct message *order) {
        switch (order->kind) {
        case ORDER_COLLECT: order_collect(node, order); break;
        case ORDER_RUN: order_run(node, order); break;
        case ORDER_HOLD: order_hold(node, now); break;
        case ORDER_STOP: order_stop(node, now, order); break;
        case ORDER_FREEZE: order_freeze(node, now); break;
        case ORDER_CUT: order_cut(node, order); break;
        case ORDER_ABORT: order_abort(node, now); break;
        case ORDER_VERDICT: order_verdict(node, order); break;
        case ORDER_NEWGEN: order_newgen(node, order); break;
        case ORDER_END: order_end(node, order); break;
        case ORDER_FENCE:
                if (node_is_in(node))
                        leave(node, NODE_LEAVING, true);
                break;
        default: break;
        }
}

/* Whether this comes from who coordinates now, and is meant for this run of this node. */
static bool accept(struct node *node, uint64_t now, const struct message *order) {
        if (!message_valid(order) || order->kind >= ANSWER_REPORT || order->to != node->config.address ||
            order->instance != node->config.instance || order->from >= node->config.candidates)
                return false;
        if (order->term < node->term && !planted(PLANTED_FENCE_OPEN)) {
                report_send(node, now); /* which says that there is a later one */
                return false;
        }
        if (order->term > node->term) {
                node->term = order->term;
                node->round = 0;
                node->answer = ANSWER_REPORT;
                node->coordinator = order->from;
                node->reported = 0;
        }
        if (order->stamp > node->contact && order->stamp <= node->stamp)
                node->contact = order->stamp;
        if (tag_compare(&order->history, &node->history) > 0)
                node->history = order->history;         /* for the coordinator that comes next */
        return true;
}

void node_receive(struct node *node, uint64_t now, const struct message *order) {
        if (!accept(node, now, order)) {
                node_wake(node, now);
                return;
        }
        node_wake(node, now);
        if (node->suspended && now <= node->contact + node->config.times.patience)
                node->suspended = false;
        if (now > order->stamp + node->config.times.patience) {
                /* It waited while this node slept, and may be about a world that is over. If not, it is said again. */
        } else if (order->kind == ORDER_REFUSE) {
                report_refuse(node, order);
        } else if (order->round > node->round || (order->kind == ORDER_FENCE && order->round == node->round)) {
                node->round = order->round;
                carry_out(node, now, order);
        }
        node_advance(node, now);
}

void node_tick(struct node *node, uint64_t now) {
        node_wake(node, now);
        node_advance(node, now);
        if (now >= node->reported + node->config.times.heartbeat)
                report_send(node, now);
}

uint64_t node_deadline(const struct node *node) {
        return node->reported + node->config.times.heartbeat;
}

void node_built(struct node *node, uint64_t now, struct generation comm, uint64_t unreachable) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || node->phase != NODE_BUILDING)
                return;
        node->links |= unreachable & node->set;
        if (node->links != 0) {
                report_send(node, now);
                return;
        }
        enter(node);
        report_send(node, now);
        node_advance(node, now);
}

void node_aborted(struct node *node, uint64_t now, struct generation comm) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm))
                return;
        node->comm = (struct generation){ 0 };
        memset(node->lane, 0, sizeof(node->lane));
        if (node->phase == NODE_ABORTING)
                say(node, now, NODE_ABORTED, ANSWER_ABORTED);
        node_advance(node, now);
}

void node_unreachable(struct node *node, uint64_t now, struct generation comm, uint64_t nodes) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || (nodes & node->set) == 0 || !node_is_in(node))
                return;
        node->links |= nodes & node->set;
        report_send(node, now);
}
