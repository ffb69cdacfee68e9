/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a node in each phase, and the end of each phase. */
#include "rendezvous/machine/node_private.h"

void node_say(struct node *node, uint64_t now, enum node_phase phase, enum report_kind answer) {
        node_set_phase(node, phase, answer);
        report_send(node, now);
}

/* Lets go of the generation: what is open comes to nothing here. */
void node_let_go(struct node *node, enum node_phase phase, bool behind) {
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
