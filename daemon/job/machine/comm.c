/* SPDX-License-Identifier: Apache-2.0 */
#include "job/machine/comm.h"

#include <assert.h>
#include <string.h>

/* From bad to worse, or anew. */
void comm_set_state(struct comm *comm, enum comm_state state) {
        if (state == COMM_WORKS || state > comm->state)
                comm->state = state;
}

void comm_begin(struct comm *comm, uint64_t id) {
        assert(comm->old_id == 0);
        comm->old_id = comm->id;
        comm->id = id;
        comm_set_state(comm, COMM_WORKS);
        memset(comm->lane, 0, sizeof(comm->lane));
}

void comm_rest(struct comm *comm) {
        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                comm->lane[lane].planned = 0;
}

/* The unit is over with its vote. */
static void comm_follow(struct comm_lane *lane, const struct comm_item *item) {
        if (item->index == COMM_VOTE || lane->planned == 0) {
                lane->planned = 0;
                return;
        }
        lane->next = *item;
        lane->next.index = item->index + 1 < lane->planned ? item->index + 1 : COMM_VOTE;
}

/* A filler stands for what follows on the lane. Where no unit has begun that is a comparison: the others have
 * launched nothing beyond it, because it is done only with this node's part. */
static struct comm_item comm_item_of(const struct comm_lane *lane, const struct action *action) {
        struct comm_item item = { .track = action->track };

        if (action->launch == LAUNCH_FILLER) {
                if (lane->planned > 0)
                        item = lane->next;
                item.filler = true;
        } else {
                item.index = action->launch == LAUNCH_VOTE ? COMM_VOTE : action->index;
        }
        return item;
}

bool comm_take(struct comm *comm, const struct action *action, uint64_t planned) {
        struct comm_lane *lane = &comm->lane[action->lane];
        struct comm_item item = comm_item_of(lane, action);

        if (!item.filler && item.index == 0) {
                lane->planned = planned;
                lane->compares = action->seq;
        }
        comm_follow(lane, &item);
        lane->launched = action->seq;
        lane->item[action->seq % COMM_WINDOW] = item;
        if (item.filler && lane->compares > 0 && lane->held == 0)
                lane->held = action->seq;
        return lane->held == 0 && comm->state == COMM_WORKS;
}

uint64_t comm_next_held(struct comm *comm, uint32_t at, uint64_t done) {
        struct comm_lane *lane = &comm->lane[at];
        uint64_t held = lane->held;

        if (lane->compares == done)
                lane->compares = 0;
        if (lane->compares > 0 || held == 0 || comm->state != COMM_WORKS)
                return 0;
        lane->held = held < lane->launched ? held + 1 : 0;
        return held;
}

void comm_pack(uint64_t value[ENGINE_VALUES], const struct comm_words *words) {
        memset(value, 0xff, ENGINE_VALUES * sizeof(*value));
        if (words == NULL)
                return;
        for (unsigned i = 0; i < COMM_WORDS; i++) {
                value[2 + 2 * i] = words->word[i];
                value[3 + 2 * i] = ~words->word[i];
        }
        value[1] = ~words->largest;
}

/* A filler has given zeros, and compares equal with nothing. */
bool comm_unpack(const uint64_t value[ENGINE_VALUES], struct comm_words *ret) {
        bool same = value[0] != 0;

        for (unsigned i = 0; i < COMM_WORDS; i++) {
                ret->word[i] = value[2 + 2 * i];
                ret->most[i] = ~value[3 + 2 * i];
                same &= ret->word[i] == ret->most[i];
        }
        ret->largest = ~value[1];
        return same;
}
