/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the coordinator. No file calls one that stands further down. */
#pragma once

#include "rendezvous/machine/coordinator.h"
#include "rendezvous/machine/planted.h"

/* coordinator_room.c */
void coordinator_hear_anew(struct coordinator *c); /* no node has said anything */
static inline struct track_report *coordinator_track(const struct coordinator *c, uint32_t node,
                                                     uint32_t track) {
        return &c->track[node * c->config.room.tracks + track];
}
/* The plans of a node. */
static inline struct report_plan *coordinator_plans(const struct coordinator *c, uint32_t node) {
        return &c->plan[(size_t)node * c->config.room.tracks];
}
/* The nodes of its generation, as that node says; and those that it cannot reach. */
static inline struct nodeset coordinator_set_of(const struct coordinator *c, uint32_t node) {
        return (struct nodeset){ c->nodes + 2 * (size_t)node * c->set.words, c->set.words };
}
static inline struct nodeset coordinator_links_of(const struct coordinator *c, uint32_t node) {
        return (struct nodeset){ c->nodes + (2 * (size_t)node + 1) * c->set.words, c->set.words };
}
/* The node has answered nothing since the nodes were told of the generation: it may be about to enter it. Its
 * reports of a former term may also be older than that term's last order. */
static inline bool coordinator_awaits(const struct coordinator *c, uint32_t node) {
        return c->node[node].term < c->term || c->node[node].round < c->entering;
}
/* For how long nothing may be heard of a node. One whose daemon is about to be followed by another one has as
 * long as nodes have without a coordinator. */
static inline uint64_t coordinator_patience(const struct coordinator *c, uint32_t node) {
        return c->node[node].away ? c->config.times.abandon : c->config.times.death;
}
static inline bool coordinator_survives(const struct coordinator *c, uint32_t node) {
        return nodeset_has(c->set, node) && !nodeset_has(c->lost, node);
}

/* An order for that node, about nothing yet. */
static inline void coordinator_address(const struct coordinator *c, uint32_t node, enum order_kind kind,
                                       struct order *ret) {
        order_clear(ret);
        ret->kind = kind;
        ret->to = node;
        ret->instance = c->node[node].instance;
        ret->term = c->term;
        ret->round = c->round;
        ret->stamp = c->node[node].stamp;
}

/* coordinator_source.c: the rank whose state the others take, and its tag. */
uint32_t source_find(const struct coordinator *c, struct tag *ret);
/* Gives members that come back from a former daemon the tags that they have not heard of. */
/* All three are called before the generation is named. True if a member lacks that state: it is new in the
 * generation, or has not taken the state in the one before; or there is none yet. */
bool source_is_lacked(const struct coordinator *c, const struct tag *source);
/* Members were to take it in the generation before, and may not have. */
bool source_is_due(const struct coordinator *c);
/* Members hear that what was open is void: those of some node must, or not all of them are the former
 * ones. */
bool source_is_torn(const struct coordinator *c);
/* NEWGEN, for one node. False: no secret is to be had now. */
bool source_fill_order(const struct coordinator *c, struct order *order);

/* coordinator_track.c. A report may say something new of plans; then the orders perhaps do: */
bool tracks_note(struct coordinator *c, const struct report *report);
bool tracks_assign(struct coordinator *c);
void tracks_begin(struct coordinator *c); /* a generation */
/* Plans of members of the generation that another one is to follow; `anew`: of any generation. */
void tracks_keep(struct coordinator *c, bool anew);
/* Units that share a lane get their turns once no node lacks anything of them. True if one has. */
bool tracks_give_turns(struct coordinator *c, const struct report *report);
void tracks_fill_order(const struct coordinator *c, struct order *order);
/* The node that keeps a plan of the others closed, and is not among those that have members; LIMIT_NODES:
 * none. */
uint32_t tracks_find_ignorant(const struct coordinator *c, struct nodeset full);

/* coordinator_launch.c: limits up to which nodes may launch, if launches are agreed on. launches_begin(): in
 * a generation that is made now; launches_learn(): in one that another coordinator has made. */
void launches_begin(struct coordinator *c);
void launches_learn(struct coordinator *c);
bool launches_agree(struct coordinator *c); /* true: further than before */

/* The plan as that node has reported it, or NULL. */
const struct report_plan *tracks_said_of(const struct coordinator *c, uint32_t node, uint32_t ordinal);
struct track_owner *tracks_find(const struct coordinator *c, uint32_t ordinal);
/* Two nodes have a plan differently that is not open; the first one has it as it counts. */
bool tracks_find_difference(const struct coordinator *c, uint32_t *ret_ordinal, uint32_t ret_nodes[2]);
static inline struct rejection *coordinator_rejection(const struct coordinator *c, uint32_t ordinal) {
        for (uint32_t i = 0; i < LIMIT_REJECTIONS && c->agreement != NULL; i++)
                if (c->agreement->rejection[i].held && c->agreement->rejection[i].ordinal == ordinal)
                        return &c->agreement->rejection[i];
        return NULL;
}

/* coordinator_agree.c: why a plan is not open, and what its nodes hear of that. */
void agree_take(struct coordinator *c, uint64_t now, const struct report *report);
void agree_begin(struct coordinator *c); /* a generation */

/* coordinator_order.c */
/* coordinator_set_stage() is the only writer of the stage. coordinator_give() also gives its order to all
 * nodes. */
void coordinator_set_stage(struct coordinator *c, enum coordinator_stage stage);
void coordinator_give(struct coordinator *c, uint64_t now, enum coordinator_stage stage);
void coordinator_say(struct coordinator *c, uint64_t now);
void coordinator_say_to(struct coordinator *c, uint32_t node);
bool coordinator_all(const struct coordinator *c,
                     enum report_kind answer);                            /* all survivors have answered so */
bool coordinator_is_answered(const struct coordinator *c, uint32_t node); /* that node has, in any way */
/* A survivor is going to be followed by another run of its daemon. */
bool coordinator_any_away(const struct coordinator *c);
/* A survivor's part in the tally: 1 to put it in, -1 to take it out before it changes. */
void coordinator_count(struct coordinator *c, uint32_t node, uint32_t sign);
/* Makes these the nodes of the generation, none of them lost. */
void coordinator_set_nodes(struct coordinator *c, struct nodeset nodes);
/* Notes that one of them is lost. */
void coordinator_lose_node(struct coordinator *c, uint32_t node);

/* coordinator_places.c: tells nodes of vacant places, and of members that wait, if that has changed; and one
 * of them in any case. */
void places_tell(struct coordinator *c, uint64_t now, bool again);
void places_say_to(struct coordinator *c, uint32_t node);

/* coordinator_member.c: who is there, and the way from a loss to its verdict */
void member_report(struct coordinator *c, uint64_t now, const struct report *report);
struct nodeset member_abandoned(struct coordinator *c);     /* a view of c->abandoned */
void member_admit_all(struct coordinator *c, uint64_t now); /* whose time has come */
/* The members of the node are lost with it: UNREACHABLE, or RESTARTED if it has left its generation. */
void member_forget(struct coordinator *c, uint64_t now, uint32_t node, uint32_t cause);
void member_begin_anew(struct coordinator *c, uint64_t now); /* no member is left: those here form anew */
enum membership_event member_tick(struct coordinator *c, uint64_t now); /* answers waits that have ended */
bool member_is_any_on(const struct coordinator *c, uint32_t node);      /* of the generation */
/* Those with a member that belongs to the generation. */
void member_add_nodes(const struct coordinator *c, struct nodeset nodes);
void loss_begin(struct coordinator *c, uint64_t now);
void loss_node(struct coordinator *c, uint64_t now, uint32_t node, uint32_t cause); /* see member_forget() */
void loss_advance(struct coordinator *c, uint64_t now);
bool loss_found(const struct coordinator *c);
void loss_expel(struct coordinator *c, uint64_t now, enum report_kind missing);

/* coordinator_form.c */
void form_advance(struct coordinator *c, uint64_t now);
void form_end(struct coordinator *c, uint64_t now, enum job_end end);
void form_break(struct coordinator *c, uint64_t now); /* there will be no further generation */

/* coordinator_take.c */
/* In a term of its own, after `former`: the highest that was heard of; 0: none. */
void take_over(struct coordinator *c, uint64_t now, uint64_t former);
/* The same in the term that there is. */
void take_again(struct coordinator *c, uint64_t now);
void take_advance(struct coordinator *c, uint64_t now);
