/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the coordinator share among themselves. */
#pragma once

#include "rendezvous/coordinator.h"
#include "rendezvous/planted.h"

/* coordinator.c */
void coordinator_give(struct coordinator *c, uint64_t now, enum message_kind order); /* from now on, to all */
bool coordinator_all(const struct coordinator *c,
                     enum message_kind answer);    /* the survivors have answered so */
void coordinator_hear_anew(struct coordinator *c); /* no node has said anything */
static inline struct track_report *coordinator_track(const struct coordinator *c, uint32_t node,
                                                     uint32_t track) {
        return &c->track[node * c->config.room.tracks + track];
}
/* The nodes of its generation, as that node says; and those that it cannot reach. */
static inline struct nodeset coordinator_set_of(const struct coordinator *c, uint32_t node) {
        return (struct nodeset){ c->nodes + 2 * (size_t)node * c->set.words, c->set.words };
}
static inline struct nodeset coordinator_links_of(const struct coordinator *c, uint32_t node) {
        return (struct nodeset){ c->nodes + (2 * (size_t)node + 1) * c->set.words, c->set.words };
}
static inline bool coordinator_survives(const struct coordinator *c, uint32_t node) {
        return nodeset_has(c->set, node) && !nodeset_has(c->lost, node);
}
/* These nodes are the generation's, none of them lost. */
void coordinator_set_nodes(struct coordinator *c, struct nodeset nodes);
/* One of them is lost to it. */
void coordinator_lose_node(struct coordinator *c, uint32_t node);

/* coordinator_places.c: tells nodes of vacant places, and of members that wait, if that has changed; and one
 * of them in any case. */
void places_tell(struct coordinator *c, bool again);
void places_say_to(struct coordinator *c, uint32_t node);

/* coordinator_member.c */
void member_report(struct coordinator *c, uint64_t now, const struct message *report);
void member_admit_all(struct coordinator *c, uint64_t now);             /* whose time has come */
void member_forget(struct coordinator *c, uint64_t now, uint32_t node); /* its members are lost with it */
enum membership_event member_tick(struct coordinator *c, uint64_t now); /* answers waits that have ended */
/* Those with a member that belongs to the generation. */
void member_add_nodes(const struct coordinator *c, struct nodeset nodes);

/* coordinator_loss.c */
void loss_begin(struct coordinator *c, uint64_t now);
void loss_node(struct coordinator *c, uint64_t now, uint32_t node);
void loss_advance(struct coordinator *c, uint64_t now);
bool loss_found(const struct coordinator *c);
void loss_expel(struct coordinator *c, uint64_t now, enum message_kind missing);

/* coordinator_form.c */
void form_advance(struct coordinator *c, uint64_t now);
void form_begin(struct coordinator *c, uint64_t now); /* nobody is left: whoever is here forms anew */
void form_end(struct coordinator *c, uint64_t now, enum job_end end);
void form_break(struct coordinator *c, uint64_t now); /* there will be no further generation */
void form_fill_order(struct coordinator *c, struct message *order);

/* coordinator_take.c */
void take_over(struct coordinator *c, uint64_t now);
void take_advance(struct coordinator *c, uint64_t now);
