/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of a node. No file calls one that stands further down. */
#pragma once

#include "rendezvous/machine/node.h"
#include "rendezvous/machine/planted.h"

/* node_base.c */
static inline bool node_is_in(const struct node *node) {
        return node->phase != NODE_OUT && node->phase != NODE_LEAVING && node->phase != NODE_ENDED;
}
void node_act(const struct node *node, const struct action *action);
void node_set_phase(struct node *node, enum node_phase phase, enum report_kind answer);
void node_abort_engine(struct node *node);
void node_drop_older(struct node *node); /* communicator */
/* From the driver's time to the node's own. One whose clock has gone back, or that has slept, is suspended by
 * it until a coordinator speaks to it. */
uint64_t node_look(struct node *node, uint64_t now);
void node_use_tracks(struct node *node, uint32_t n);

/* node_lane.c */
bool lane_is_agreed(const struct node *node, uint32_t at); /* its launches are */
bool lane_has_room(const struct node *node, uint32_t at);  /* for one more: the window is open */
/* The next collective of the lane is one of that track, and ready to be launched. */
void lane_note_ready(struct node *node, uint32_t which, uint32_t at);
void lane_hear(struct node *node, const struct order *order); /* about the present generation */
uint64_t lane_ready(const struct node *node);                 /* of all that are agreed on; only grows */
/* Finds the lane on which something may be launched next, and has to be then. False: there is none. */
bool lane_take(struct node *node, uint32_t *ret_at);
uint32_t lane_next(const struct node *node, uint32_t at); /* the track of that collective */
/* Both return the sequence number. */
uint64_t lane_count_launch(struct node *node, uint32_t at);
uint64_t lane_fill(struct node *node, uint32_t at); /* a filler, for the others' sake */
uint32_t lane_complete(struct node *node,
                       uint32_t at); /* completes the next one; its track, or LIMIT_TRACKS for a filler */
void lane_forget(struct node *node); /* drops collectives that are not launched */
void lane_reset(struct node *node);  /* another communicator, or none */

/* node_plan.c: carries out an order about plans. plan_hear(): in the present generation; plan_enter(): at its
 * beginning, when another coordinator may have given the tracks before. */
void plan_hear(struct node *node, const struct order *order);
void plan_enter(struct node *node, const struct order *order);
/* A loss ends it: then its members begin it anew, under the same ordinal. */
static inline bool plan_is_begun_anew(const struct node_plan *plan) {
        return plan->voids && !track_is_step(plan->track);
}
bool plan_is_closed(const struct node *node, uint32_t track);
/* EXPLAIN and REJECT. */
void plan_be_asked(struct node *node, const struct order *order);
bool plan_be_rejected(struct node *node, const struct order *order); /* true: to be reported */

/* node_unit.c: launches and decides whatever can be. */
void unit_progress(struct node *node);
/* True if that is more than the coordinator knows to be needed. */
bool unit_open_more(struct node *node);
/* The verdict about a track's open unit, if there is one. */
void unit_decide(struct node *node, uint32_t track, uint64_t verdict);
/* Ends each open unit as void; members hear that other nodes may have it. */
void unit_give_up(struct node *node, uint32_t track);
void unit_reset(struct track *track);
/* The unit is as it was in a former run of the daemon: open, or nothing of it has begun. */
void unit_restore(struct track *track, uint64_t committed, bool opened, bool prepared);
uint64_t unit_steps(const struct node *node); /* that were committed, of all plans */
bool unit_alone(const struct node *node);     /* no other node belongs to the generation */
bool unit_idle(const struct node *node);
bool unit_empty(const struct node *node);       /* no member of this node belongs to the generation */
uint64_t unit_ended(const struct track *track); /* in any way that all nodes agree on */
uint64_t unit_opened(const struct node *node, uint32_t track);
/* The unit that this node wants launched on the shared lane, or has there: its number; 0: none. */
uint64_t unit_in_turn(const struct node *node, uint32_t track);
/* True if some of these units have not been reported yet. They count as reported then. */
bool unit_asks(struct node *node);
void unit_take_turn(struct node *node, uint32_t track, uint64_t number, uint64_t turn);
/* Whether there is an open unit of that generation. Calls about a unit are absorbed if they come too late. */
bool unit_is_open(const struct node *node, struct generation generation, uint32_t track);
void unit_begin(struct node *node, uint32_t track, const uint64_t planned[LIMIT_LANES]);
void unit_offer(struct node *node, uint32_t track, uint32_t lane);
void unit_full(struct node *node, uint32_t track);
void unit_differ(struct node *node, uint32_t track);
void unit_spoil(struct node *node, uint32_t track);
void unit_landed(struct node *node, uint32_t track);
void unit_tear(struct node *node, uint32_t track);
void unit_quiet(struct node *node, uint32_t track);
void unit_done(struct node *node, uint32_t lane, uint64_t value);

/* node_report.c: says everything to the coordinator, or to all that may be it. */
void report_send(struct node *node, uint64_t now);
/* The members named by the order belong to the generation, the others of this node do not. `words`: they have
 * come back from a former daemon, and do not know their tags. */
void report_enter(struct node *node, const struct order *order);
void report_refuse(struct node *node, const struct order *order);
void report_note_places(struct node *node, const struct order *order);
struct report_member *report_find(struct node *node, uint64_t member);
struct report_member *report_add(struct node *node, const struct membership_request *request,
                                 const struct tag *tag);
void report_drop(struct node *node, struct report_member *member, uint32_t cause);

/* node_phase.c. node_advance() sees whether the phase has done what it is there for. */
void node_advance(struct node *node, uint64_t now);
/* Judges how long no coordinator has been heard. */
void node_judge_contact(struct node *node);
/* Begins each call: looks at the time, and judges the contact. Returns the node's own time. */
uint64_t node_wake(struct node *node, uint64_t now);
void node_say(struct node *node, uint64_t now, enum node_phase phase, enum report_kind answer);
void node_enter(struct node *node);
void order_carry_out(struct node *node, uint64_t now, const struct order *order);
