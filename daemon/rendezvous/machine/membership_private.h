/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the membership. */
#pragma once

#include "rendezvous/machine/membership.h"
#include "rendezvous/machine/nodeset.h"

/* membership_seats.c */
/* Makes room for one more at that index of seat[]. The caller fills it in, and counts it. If there is no
 * room, the member that has been without a place for longest is forgotten. */
struct seat *seats_open(struct membership *m, uint32_t at);
/* Removes the seat at that index. */
void seats_close(struct membership *m, uint32_t at);
/* The member has lost its place, or gets none: it stays until its node reports it no more. */
void seats_turn_away(struct membership *m, struct seat gone, enum seat_state why);

/* membership_places.c */
/* Ranks, or local ranks, for the length of a function: a set like those of nodes. */
#define RANKS_SCRATCH                                                                                        \
        (struct nodeset) {                                                                                   \
                (uint64_t[LIMIT_WORLD / 64 + 1]){ 0 }, LIMIT_WORLD / 64 + 1                                  \
        }

/* Returns whether some member has asked for its rank, so that no rank may change. */
bool places_any_explicit(const struct membership *m);
/* Ranks and local ranks of a job that forms. */
void places_assign(struct membership *m);
/* The rank goes to the newcomer; the local rank too, on the same host. */
void places_take(struct membership *m, struct seat *place, const struct seat *newcomer, uint64_t deadline);
/* The next generation: without those that are lost, with those that wait. Where ranks were asked for, they
 * stay. */
void places_regenerate(struct membership *m);

/* membership.c: the only writer of the state. */
void membership_set_state(struct membership *m, enum membership_state state);
