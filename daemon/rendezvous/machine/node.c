/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a node's driver: orders that come, and what the engine, the members and the daemon do.
 *
 * A node carries out orders: the highest numbered one of the highest term. Earlier ones are void then, what
 * comes late is dropped. A node that hears of no coordinator holds still first, and leaves its generation
 * after a longer time; it never makes a smaller world of its own.
 */
#include "rendezvous/machine/node.h"

#include <assert.h>

#include "gradsync.pb-c.h"
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

/* ---- members: those that come, those that say goodbye, and those that are lost ---- */

/* Refuses a member that this node cannot even report. */
static void refuse_here(const struct node *node, const struct membership_request *request) {
        bool ended = node->phase == NODE_ENDED;
        struct refusal refusal = { 0 };

        if (ended)
                refuse(&refusal, WIRE__CODE__JOB_FULL,
                       "job '%s' has ended, pid %d cannot join it any more; begin anew once its last "
                       "member has left",
                       node->config.name, request->pid);
        else
                refuse(&refusal, WIRE__CODE__JOB_FULL, "job '%s' has %u members here, pid %d cannot join it",
                       node->config.name, node->n, request->pid);
        node_act(node, &(struct action){ .kind = ACTION_REFUSED,
                                         .member = request->member,
                                         .refusal = &refusal,
                                         .end = ended ? node->end : JOB_END_REFUSED });
}

/* Whether it is the newer process of a member that is here: there will be no more members for its sake. */
static bool follows(const struct node *node, const struct membership_request *request) {
        for (uint32_t i = 0; i < node->n && request->identity != 0; i++)
                if (node->member[i].request.identity == request->identity &&
                    node->member[i].request.instance < request->instance)
                        return true;
        return false;
}

void node_join(struct node *node, uint64_t now, const struct membership_request *request,
               const struct tag *tag) {
        now = node_wake(node, now);
        if (report_find(node, request->member) != NULL)
                return;
        if (node->phase == NODE_ENDED || node->n == node->config.room.members ||
            (node->n == LIMIT_LOCAL && !follows(node, request))) {
                refuse_here(node, request);
                return;
        }
        report_add(node, request, tag);
        report_send(node, now);
}

void node_lose(struct node *node, uint64_t now, uint64_t member, uint32_t cause) {
        struct report_member *lost = report_find(node, member);

        now = node_wake(node, now);
        if (lost == NULL)
                return;
        report_drop(node, lost, lost->leaving ? WIRE__CAUSE__LEAVING : cause);
        report_send(node, now);
        node_advance(node, now);
}

void node_leave(struct node *node, uint64_t now, uint64_t member) {
        struct report_member *leaving = report_find(node, member);

        now = node_wake(node, now);
        if (leaving == NULL)
                return;
        leaving->leaving = true;
        report_send(node, now);
}

void node_sync(struct node *node, uint64_t member) {
        struct report_member *receiver = report_find(node, member);

        if (receiver != NULL && receiver->in && receiver->behind)
                receiver->tag = (struct tag){ 0 };
}

void node_synced(struct node *node, uint64_t member, const struct tag *tag) {
        struct report_member *receiver = report_find(node, member);

        if (receiver == NULL || !receiver->in || !receiver->behind)
                return;
        receiver->tag = *tag;
        receiver->behind = false;
}

void node_wait(struct node *node, uint64_t now, bool wait) {
        node->wait = wait;
        now = node_wake(node, now);
        if (!wait && node->said_wait)
                report_send(node, now);
}

void node_end(struct node *node, uint64_t now, uint32_t cause) {
        now = node_wake(node, now);
        node->cause = cause;
        report_send(node, now);
}

bool node_waits(struct node *node, uint64_t member) {
        const struct report_member *found = report_find(node, member);

        return found != NULL && found->waits;
}

/* ---- plans: all members here have agreed on one, or cannot; or no member has it any more ---- */

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

/* ---- open steps and operations; a call about another generation is absorbed ---- */

/* Begins each call about a track's unit. */
static bool node_is_about(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_wake(node, now);
        return unit_is_open(node, generation, which);
}

bool node_open(struct node *node, uint64_t now, struct generation generation, uint32_t which,
               const uint64_t planned[LIMIT_LANES]) {
        node_wake(node, now);
        if (node->phase != NODE_RUNNING || which >= node->config.room.tracks ||
            !generation_equal(generation, node->generation) || node->track[which].state != UNIT_IDLE)
                return false;
        node_use_tracks(node, which + 1);
        unit_begin(node, which, planned);
        node_advance(node, node->time.now);
        return true;
}

void node_offer(struct node *node, uint64_t now, struct generation generation, uint32_t which,
                uint32_t lane) {
        if (!node_is_about(node, now, generation, which))
                return;
        unit_offer(node, which, lane);
        node_advance(node, node->time.now);
}

/* Passes on a call that is about a unit, and has no other argument. */
static void node_pass(struct node *node, uint64_t now, struct generation generation, uint32_t which,
                      void (*take)(struct node *node, uint32_t track)) {
        if (!node_is_about(node, now, generation, which))
                return;
        take(node, which);
        node_advance(node, node->time.now);
}

void node_full(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_full);
}

void node_differ(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_differ);
}

void node_spoil(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_spoil);
}

void node_landed(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_landed);
}

void node_tear_unit(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_tear);
}

void node_tear(struct node *node, struct generation generation) {
        node->torn |= node->world > 0 && generation_equal(generation, node->generation);
}

void node_quiet(struct node *node, uint64_t now, struct generation generation, uint32_t which) {
        node_pass(node, now, generation, which, unit_quiet);
}

void node_done(struct node *node, uint64_t now, struct generation comm, uint32_t lane, uint64_t seq,
               uint64_t value) {
        node_wake(node, now);
        if (!generation_equal(comm, node->comm) || lane >= node->config.n_lanes ||
            seq != node->lane[lane].completed + 1 || seq > node->lane[lane].launched)
                return;
        unit_done(node, lane, value);
        node_advance(node, node->time.now);
}

/* ---- a daemon that ends, and one that starts anew ---- */

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

/* The journal of the former run is given to the node as the report that it sends from then on. The
 * coordinator judges by it as by any other report. */
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
