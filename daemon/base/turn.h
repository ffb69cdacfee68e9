/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose turn it is on the event thread. In each pass over the ready sockets a user gets a budget of time;
 * what its connections want beyond that waits for the next pass, so that one user's hundred busy connections
 * delay the steps of others by one budget and not by a hundred answers. Among a user's own connections each
 * gets its turn before one gets a second one. Pure: passes and times come in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TURN_BUDGET 500u /* us for a user in a pass */

struct turn {           /* of one user; zero-initialised */
        uint64_t pass;  /* in which it was active last */
        uint64_t spent; /* us of that pass */
        uint64_t round;
        bool hungry; /* a connection has not had its turn in this round */
};

/* Whether a connection of this user may go on in this pass; `*next` is the connection's, 0 at first. If so,
 * what it takes is to be charged. */
bool turn_take(struct turn *turn, uint64_t pass, uint64_t *next);
static inline void turn_charge(struct turn *turn, uint64_t us) {
        turn->spent += us;
}
static inline uint64_t turn_left(const struct turn *turn) {
        return turn->spent < TURN_BUDGET ? TURN_BUDGET - turn->spent : 0;
}
static inline bool turn_is_over(const struct turn *turn) {
        return turn_left(turn) == 0;
}
