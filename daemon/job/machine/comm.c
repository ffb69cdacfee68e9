/* SPDX-License-Identifier: Apache-2.0 */
#include "job/machine/comm.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From bad to worse, or anew. */
void comm_set_state(struct comm *comm, enum comm_state state) {
        if (state == COMM_WORKS || state > comm->state)
                comm->state = state;
}

static void comm_forget_table(struct comm *comm) {
        free((void *)comm->kept.start);
        comm->kept = (struct comm_table){ 0 };
}

void comm_begin(struct comm *comm, uint64_t id) {
        assert(comm->old_id == 0);
        comm_forget_table(comm);
        comm->old_id = comm->id;
        comm->id = id;
        comm->parts = comm->unbuilt = 0;
        comm->told = false;
        comm_set_state(comm, COMM_WORKS);
        memset(comm->lane, 0, sizeof(comm->lane));
}

void comm_add(struct comm *comm, uint32_t part) {
        comm->parts |= 1u << part;
        comm->unbuilt |= 1u << part;
}

void comm_end(struct comm *comm) {
        comm_forget_table(comm);
        comm->id = 0;
}

static void comm_keep_table(struct comm *comm, struct comm_table table) {
        void *copy = malloc(table.bytes + 1);

        if (copy != NULL)
                comm->kept = (struct comm_table){ memcpy(copy, table.start, table.bytes), table.bytes };
}

void *comm_join(struct comm *comm, uint32_t part, struct comm_table table, size_t *ret_bytes) {
        struct comm_table first = part == 0 ? table : comm->kept, second = part == 0 ? comm->kept : table;
        uint32_t split = (uint32_t)first.bytes;
        size_t bytes = sizeof(split) + first.bytes + second.bytes;

        if (comm->kept.start == NULL) {
                comm_keep_table(comm, table);
                return NULL;
        }
        unsigned char *joined = bytes <= ENGINE_TABLE ? malloc(bytes) : NULL;
        if (joined != NULL) {
                memcpy(joined, &split, sizeof(split));
                memcpy(joined + sizeof(split), first.start, first.bytes);
                memcpy(joined + sizeof(split) + first.bytes, second.start, second.bytes);
        }
        comm_forget_table(comm);
        *ret_bytes = bytes;
        return joined;
}

int comm_split(struct comm_table table, struct comm_table ret[COMM_PARTS]) {
        const unsigned char *start = table.start;
        uint32_t split;

        if (table.bytes < sizeof(split))
                return -EINVAL;
        memcpy(&split, start, sizeof(split));
        if (split > table.bytes - sizeof(split))
                return -EINVAL;
        ret[0] = (struct comm_table){ start + sizeof(split), split };
        ret[1] = (struct comm_table){ start + sizeof(split) + split, table.bytes - sizeof(split) - split };
        return 0;
}

bool comm_built(struct comm *comm, uint32_t part, bool works) {
        bool told = comm->told;

        comm->unbuilt &= ~(1u << part);
        comm->told = told || !works || comm->unbuilt == 0;
        return comm->told && !told;
}

bool comm_ended(struct comm *comm, uint32_t part) {
        comm->parts &= ~(1u << part);
        if (comm->parts == 0)
                comm_end(comm);
        return comm->parts == 0;
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

/* A filler has given zeros, with which no comparison succeeds. */
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
