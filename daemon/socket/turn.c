/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets by uid and pass, rounds among a uid's connections. */
#include "socket/turn.h"

#include <stddef.h>

static struct turn_place *find(struct turns *turns, uid_t uid) {
        struct turn_place *oldest = &turns->place[0];

        for (unsigned i = 0; i < TURN_PLACES; i++) {
                struct turn_place *place = &turns->place[i];

                if (place->used && place->uid == uid)
                        return place;
                if (!place->used || (oldest->used && place->pass < oldest->pass))
                        oldest = place;
        }
        *oldest = (struct turn_place){ .used = true, .uid = uid, .round = ++turns->rounds };
        return oldest;
}

struct turn_place *turn_take(struct turns *turns, uid_t uid, uint64_t pass, uint64_t *round) {
        struct turn_place *place = find(turns, uid);

        if (place->pass != pass) {
                if (!place->hungry)
                        place->round = ++turns->rounds;
                place->pass = pass;
                place->spent = 0;
                place->hungry = false;
        }
        if (*round == place->round)
                return NULL; /* the others first */
        if (turn_is_over(place)) {
                place->hungry = true;
                return NULL;
        }
        *round = place->round;
        return place;
}
