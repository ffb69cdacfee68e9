/* SPDX-License-Identifier: Apache-2.0 */
/* A bucket for each uid that came lately, filled at the rate that it may have. Who finds no place takes that
 * of the one that has stayed away for longest. */
#include "socket/pace.h"

#include "base/clock.h"

static struct pace_place *find(struct pace *pace, uid_t uid) {
        for (unsigned i = 0; i < PACE_PLACES; i++)
                if (pace->place[i].used && pace->place[i].uid == uid)
                        return &pace->place[i];
        return NULL;
}

static struct pace_place *open_place(struct pace *pace, uid_t uid, uint64_t rate, uint64_t now) {
        struct pace_place *place = &pace->place[0];

        for (unsigned i = 0; i < PACE_PLACES && place->used; i++)
                if (!pace->place[i].used || pace->place[i].last < place->last)
                        place = &pace->place[i];
        *place = (struct pace_place){ .used = true, .uid = uid, .last = now, .left = (double)rate };
        return place;
}

bool pace_admits(struct pace *pace, uid_t uid, uint64_t rate, uint64_t now) {
        struct pace_place *place = find(pace, uid);

        if (place == NULL)
                place = open_place(pace, uid, rate, now);
        place->left += (double)(now - place->last) * (double)rate / USEC_PER_SEC;
        if (place->left > (double)rate)
                place->left = (double)rate;
        place->last = now;
        if (place->left < 1)
                return false;
        place->left -= 1;
        return true;
}
