/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fair turns of users on the event thread. In each pass over the ready sockets a user gets a budget of time.
 * Requests of its connections beyond that wait for the next pass, so that one user's hundred busy connections
 * delay the steps of others by one budget and not by a hundred answers. Each of a user's own connections gets
 * a turn before one gets a second turn. Pure: the caller passes passes and times.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TURN_BUDGET 500u /* us for a user in a pass */

struct turn {           /* of one user; zero-initialised */
        uint64_t pass;  /* the pass in which it was last active */
        uint64_t spent; /* us spent in that pass */
        uint64_t round;
        bool hungry; /* a connection has not had its turn in this round */
};

/* Whether a connection of this user may go on in this pass. `*next` belongs to the connection, 0 at first. If
 * it may go on, the caller charges the time that it takes. */
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
