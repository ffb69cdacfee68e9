/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node carries out orders: the highest numbered one of the highest term. What it was told before is void
 * then, what comes late is dropped. A node that hears of no coordinator holds still first, and leaves its
 * generation after a longer time; it never makes a smaller world of its own.
 */
#include "rendezvous/node.h"

#include <assert.h>
#include <string.h>

#include "rendezvous/node_private.h"

size_t node_bytes(const struct room *room) {
        return room->members * (sizeof(struct message_member) + sizeof(struct message_gone)) +
               room->tracks * (sizeof(struct track) + sizeof(uint64_t));
}

static void node_lay_out(struct node *node, const struct room *room) {
        node->config.room = *room;
        node->member = room->memory;
        node->gone = (void *)(node->member + room->members);
        node->track = (void *)(node->gone + room->members);
        node->stop = (void *)(node->track + room->tracks);
        for (uint32_t which = node->n_tracks; which < room->tracks; which++) {
                node->track[which] = (struct track){ .vote = -1 };
                node->stop[which] = 0;
        }
}

void node_move(struct node *node, const struct room *room) {
        const struct node before = *node;

        assert(before.n <= room->members && before.n_gone <= room->members &&
               before.n_tracks <= room->tracks);
        node_lay_out(node, room);
        memcpy(node->member, before.member, before.n * sizeof(*node->member));
        memcpy(node->gone, before.gone, before.n_gone * sizeof(*node->gone));
        memcpy(node->track, before.track, before.n_tracks * sizeof(*node->track));
        memcpy(node->stop, before.stop, before.n_tracks * sizeof(*node->stop));
}

void node_init(struct node *node, const struct node_config *config, uint64_t now, const struct outlet *out) {
        memset(node, 0, sizeof(*node));
        node->config = *config;
        node->out = *out;
        node->contact = now;
        node->stamp = now;
        node->answer = ANSWER_REPORT;
        node_lay_out(node, &config->room);
        node->n_tracks = TRACK_STEP + 1;
}

void node_use_tracks(struct node *node, uint32_t n) {
        assert(n <= node->config.room.tracks);
        if (n > node->n_tracks)
                node->n_tracks = n;
}

void node_act(const struct node *node, const struct action *action) {
        effects_act(&node->out, action);
}

void node_set_phase(struct node *node, enum node_phase phase, enum message_kind answer) {
        node->phase = phase;
        node->answer = answer;
}

void node_say(struct node *node, uint64_t now, enum node_phase phase, enum message_kind answer) {
        node_set_phase(node, phase, answer);
        report_send(node, now);
}

void node_drop_older(struct node *node) {
        if (node->old_comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_DROP, .comm = node->old_comm });
        node->old_comm = (struct generation){ 0 };
}

void node_abort_engine(struct node *node) {
        node_drop_older(node);
        if (node->comm.number > 0)
                node_act(node, &(struct action){ .kind = ACTION_ABORT, .comm = node->comm });
}

/* Lets go of the generation: what is open comes to nothing here. */
void node_let_go(struct node *node, enum node_phase phase, bool behind) {
        for (uint32_t which = 0; which < node->n_tracks; which++) {
                if (behind)
                        unit_give_up(node, which);
                else
                        unit_decide(node, which, 0);
        }
        node_set_phase(node, phase, ANSWER_REPORT);
        node_abort_engine(node);
}

void node_wake(struct node *node, uint64_t now) {
        if (!node_is_in(node))
                return;
        if (now > node->contact + node->config.times.patience)
                node->suspended = true;
        if (now > node->contact + node->config.times.abandon)
                node_let_go(node, NODE_LEAVING, true);
}

void node_enter(struct node *node) {
        node->suspended = node->held = node->stopping = false;
        node_set_phase(node, NODE_RUNNING, ANSWER_ACK);
        for (uint32_t i = 0; i < node->n; i++) {
                const struct message_member *member = &node->member[i];

                if (member->in)
                        node_act(node, &(struct action){ .kind = ACTION_GENERATION,
                                                         .generation = node->generation,
                                                         .set = node->set,
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
                                         .generation = node->generation,
                                         .set = node->set,
                                         .comm = node->comm,
                                         .world = node->world,
                                         .source = node->source,
                                         .number = unit_steps(node),
                                         .loss = node->loss });
        node->interrupted = false;
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
                                                         .set = node->set,
                                                         .generation = node->generation,
                                                         .lane = lane,
                                                         .seq = ++node->lane[lane].launched,
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
        node->origin = ORIGIN_OWN;
        for (uint32_t i = 0; i < node->n; i++)
                node->member[i].in = node->member[i].behind = false;
        node->world = node->n_gone = 0;
        node->interrupted = false;
        node->loss = (struct membership_loss){ 0 };
        node->suspended = node->held = node->stopping = false;
        node_act(node, &(struct action){
                               .kind = ACTION_OUT, .generation = node->generation, .since = node->contact });
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

void node_advance(struct node *node, uint64_t now) {
        unit_progress(node, now);
        if (node->phase == NODE_FILLING)
                node_fill(node);
        if (node->phase == NODE_FILLING && node->answer != ANSWER_DRAINED && drained(node))
                node_say(node, now, NODE_FILLING, ANSWER_DRAINED);
        else if (node->phase == NODE_SETTLING && unit_idle(node))
                node_say(node, now, NODE_SETTLED, ANSWER_SETTLED);
        else if (node->phase == NODE_RUNNING && node->stopping && node->answer != ANSWER_PAUSED &&
                 paused(node))
                node_say(node, now, NODE_RUNNING, ANSWER_PAUSED);
        else if (node->phase == NODE_LEAVING && unit_idle(node) && node->comm.number == 0)
                be_out(node, now);
        else if (node->phase == NODE_ENDED && unit_idle(node) && node->comm.number == 0 && node->world > 0)
                be_ended(node, now);
}

/* Whether this comes from who coordinates now, and is meant for this run of this node. */
static bool accept(struct node *node, uint64_t now, const struct message *order) {
        if (!message_valid(order) || order->kind >= ANSWER_REPORT || order->to != node->config.address ||
            order->instance != node->config.instance || order->from >= node->config.candidates ||
            order->n_tracks > node->config.room.tracks)
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
                node->history = order->history; /* for the coordinator that comes next */
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
                /* It waited while this node slept, and may be about a world that is over. If not, it is said
                 * again. */
        } else if (order->kind == ORDER_REFUSE) {
                report_refuse(node, order);
        } else if (order->round > node->round ||
                   (order->kind == ORDER_FENCE && order->round == node->round)) {
                node->round = order->round;
                order_carry_out(node, now, order);
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
        node_enter(node);
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
                node_say(node, now, NODE_ABORTED, ANSWER_ABORTED);
        node_advance(node, now);
}

void node_unreachable(struct node *node, uint64_t now, struct generation comm, uint64_t nodes) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || (nodes & node->set) == 0 || !node_is_in(node))
                return;
        node->links |= nodes & node->set;
        report_send(node, now);
}
