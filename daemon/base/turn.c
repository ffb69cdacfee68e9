/* SPDX-License-Identifier: Apache-2.0 */
/* A budget for each pass, and rounds among a user's connections. */
#include "turn.h"

bool turn_take(struct turn *turn, uint64_t pass, uint64_t *next) {
        if (turn->pass != pass) {
                turn->round += !turn->hungry;
                turn->pass = pass;
                turn->spent = 0;
                turn->hungry = false;
        }
        if (*next > turn->round)
                return false; /* the user's other connections come first */
        if (turn_is_over(turn)) {
                turn->hungry = true;
                return false;
        }
        *next = turn->round + 1;
        return true;
}
