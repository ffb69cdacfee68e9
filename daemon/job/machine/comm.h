/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The communicator of a job on this node, as its engines have it. It remembers the collectives that were
 * launched on each lane, so that each completion finds its unit, and knows for which collective a filler
 * stands. Each engine makes a part of it, with lanes of its own. It works when all parts work, and other
 * nodes learn one table of it. It also packs the words that the nodes of a job compare before the first
 * payload of a step or an operation moves. It knows neither plans nor operations: collective.c asks them
 * for their pieces.
 */
#pragma once

#include "engine/engine.h"
#include "rendezvous/machine/message.h"

#define COMM_WINDOW LIMIT_WINDOW /* collectives ahead on a lane */
_Static_assert(COMM_WINDOW <= ENGINE_WINDOW, "an engine takes as many");
#define COMM_WORDS ((ENGINE_VALUES - 2) / 2) /* of a comparison */

/* Words that must be equal on all nodes. If the values of a word differ, every node hears the smallest one
 * (`word`) and the largest one (`most`). The values of `largest` may differ: every node hears the largest
 * one. */
struct comm_words {
        uint64_t word[COMM_WORDS], most[COMM_WORDS], largest;
};

/* One collective of a unit. Payload 0 is the comparison. */
#define COMM_VOTE UINT64_MAX
struct comm_item {
        uint32_t track;
        uint64_t index; /* of the payload, or COMM_VOTE */
        bool filler;
};

struct comm_lane {
        struct comm_item item[COMM_WINDOW]; /* by sequence number */
        struct comm_item next;              /* the next one of this lane's unit, unless the unit is over */
        uint64_t planned;                   /* payloads of that unit; 0: none has begun */
        uint64_t launched;
        uint64_t compares, held; /* an open comparison, and the first one that waits for it; 0: none */
};

enum comm_state {
        COMM_WORKS,
        COMM_BROKEN, /* the engine has refused something: nothing is launched any more, held or new */
        COMM_ABORTING,
};

#define COMM_PARTS 2u /* most parts */

struct comm_table {
        const void *start;
        size_t bytes;
};

struct comm {
        uint64_t id, old_id; /* for the engine of the first part, id + 1 for that of the second; 0: none */
        enum comm_state state;
        uint32_t parts, unbuilt; /* bits: parts that have not ended, and parts that do not work yet */
        bool told;               /* it has been reported whether the communicator works */
        struct comm_table kept;  /* the table of one part, until the other one has published its table */
        struct comm_lane lane[LIMIT_LANES];
};

/* `id` 0: one that is only a name. There is no older one beside it. */
void comm_begin(struct comm *comm, uint64_t id);
/* An engine has begun to make this part. */
void comm_add(struct comm *comm, uint32_t part);
/* No part is there any more. */
void comm_end(struct comm *comm);

/* A part has published its table. Returns the table that the other nodes learn, which the caller frees: the
 * length of the first part's table, that table, the second part's table. NULL: the other part has published
 * none yet, or there is no room. */
void *comm_join(struct comm *comm, uint32_t part, struct comm_table table, size_t *ret_bytes);
/* Takes such a table apart. 0, or -EINVAL if it is none. */
int comm_split(struct comm_table table, struct comm_table ret[COMM_PARTS]);
/* A part works, or does not reach all nodes. True: the caller reports now whether the communicator works. It
 * does if this part does. */
bool comm_built(struct comm *comm, uint32_t part, bool works);
/* A part has ended. True: the communicator has ended, too. */
bool comm_ended(struct comm *comm, uint32_t part);

/* A generation begins on a communicator that is drained: the units of the generation before are over,
 * wherever they were cut. */
void comm_rest(struct comm *comm);

/* The only writer of its state: BROKEN or ABORTING from now on, if that is worse than what it is. */
void comm_set_state(struct comm *comm, enum comm_state state);

/* Notes the collective that the action launches, for comm_item(). `planned`: the number of payloads of its
 * unit. False: it is held. Some fillers wait until the comparison is done, since only that says how large
 * they are. */
bool comm_take(struct comm *comm, const struct action *action, uint64_t planned);
/* After each collective that is done: the number of the held one that is to be launched next, or 0. */
uint64_t comm_next_held(struct comm *comm, uint32_t lane, uint64_t done);
/* Returns the collective that was launched under that number. */
static inline const struct comm_item *comm_item(const struct comm *comm, uint32_t lane, uint64_t sequence) {
        return &comm->lane[lane].item[sequence % COMM_WINDOW];
}

/* The values of a comparison; `words` NULL: of a node that has no opinion. */
void comm_pack(uint64_t value[ENGINE_VALUES], const struct comm_words *words);
/* Reads the result of a comparison. Returns whether all nodes that have an opinion gave equal words. */
bool comm_unpack(const uint64_t value[ENGINE_VALUES], struct comm_words *ret);
