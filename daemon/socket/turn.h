/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose turn it is on the event thread. In each pass over the ready sockets a uid gets a budget of time; what
 * its connections want beyond that waits for the next pass, so that one user's hundred busy connections delay
 * the steps of others by one budget and not by a hundred answers. Among a uid's own connections each gets its
 * turn before one gets a second one. Pure: passes and times come in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define TURN_PLACES 64u  /* uids that are told apart; further ones take the place of who is quiet */
#define TURN_BUDGET 500u /* us for a uid in a pass */

struct turn_place {
        bool used;
        uid_t uid;
        uint64_t pass;  /* in which it was active last */
        uint64_t spent; /* us of that pass */
        uint64_t round;
        bool hungry; /* somebody has not had its turn in this round */
};

struct turns {           /* zero-initialised */
        uint64_t rounds; /* counts those of all uids: a number means one round of one uid */
        struct turn_place place[TURN_PLACES];
};

/* Whether a connection of this uid may go on in this pass; *round is the connection's, 0 at first. If it may,
 * its place is returned, to be charged with what it takes; else NULL. */
struct turn_place *turn_take(struct turns *turns, uid_t uid, uint64_t pass, uint64_t *round);
static inline void turn_charge(struct turn_place *place, uint64_t us) {
        place->spent += us;
}
static inline bool turn_is_over(const struct turn_place *place) {
        return place->spent >= TURN_BUDGET;
}
