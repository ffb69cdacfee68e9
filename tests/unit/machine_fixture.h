/* SPDX-License-Identifier: Apache-2.0 */
/* A node among several, and a coordinator, both without a driver: what they say and do is kept. */
#pragma once

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"
#include "tests/unit/recount.h"

#define NOW 1000000u
#define MAX_SENT 64u

static struct message sent_messages[MAX_SENT];
static struct action carried_out[MAX_SENT];
static unsigned n_messages, n_actions;
static struct effects effects;
static const struct outlet out = { .effects = &effects };
static struct node node;
static struct coordinator coordinator;
static void *node_memory;
static unsigned char *coordinator_memory;
static size_t coordinator_bytes_used;
#define NODES 5u

static const struct room room = { .members = LIMIT_SEATS, .tracks = LIMIT_TRACKS, .nodes = NODES };
static const struct machine_times times = { .heartbeat = 20000,
                                            .patience = 100000,
                                            .death = 200000,
                                            .abandon = 400000,
                                            .drain = 80000,
                                            .build = 120000,
                                            .lease = 120000 };

static inline void keep(const struct effect *effect) {
        if (effect->message != NULL && n_messages < MAX_SENT)
                message_copy(&sent_messages[n_messages++], effect->message);
        else if (effect->action != NULL && n_actions < MAX_SENT)
                carried_out[n_actions++] = *effect->action;
}

/* Takes over what the machines have appended since. */
static inline void pull(void) {
        effects_drain(&effects, keep);
}

static inline unsigned n_sent(void) {
        pull();
        return n_messages;
}

static inline unsigned n_acted(void) {
        pull();
        return n_actions;
}

static inline const struct message *sent(unsigned i) {
        assert_true(i < n_sent());
        return &sent_messages[i];
}

static inline const struct action *acted(unsigned i) {
        assert_true(i < n_acted());
        return &carried_out[i];
}

static inline void forget(void) {
        pull();
        n_messages = n_actions = 0;
}

#define GUARD 64u /* bytes behind the coordinator's memory */

static inline int make_room(void **state) {
        struct coordinator_config config = { .n_texts = LIMIT_REFUSALS, .room = room };

        node_memory = malloc(node_bytes(&room));
        coordinator_bytes_used = coordinator_bytes(&config);
        coordinator_memory = malloc(coordinator_bytes_used + GUARD);
        memset(coordinator_memory + coordinator_bytes_used, 0xA5, GUARD);
        return effects_init(&effects, EFFECTS_ROOM);
}

static inline void start_coordinator(struct coordinator_config config, uint64_t now) {
        config.name = "j";
        config.floor = 1;
        config.times = times;
        config.n_texts = LIMIT_REFUSALS;
        config.room = (struct room){ coordinator_memory, room.members, room.tracks, room.nodes };
        coordinator_init(&coordinator, &config, now, &out);
}

static inline int give_room(void **state) {
        for (unsigned i = 0; i < GUARD; i++)
                assert_int_equal(coordinator_memory[coordinator_bytes_used + i], 0xA5);
        free(node_memory);
        free(coordinator_memory);
        effects_deinit(&effects);
        return 0;
}

static const struct generation first = { 256, 1, 7 };

/* One of that node. */
static inline struct membership_request member(uint32_t of, uint64_t count) {
        return (struct membership_request){ .member = count > 0 ? member_id(of, 0, count) : 0,
                                            .min_world = 1,
                                            .max_world = 4,
                                            .adapts = true };
}

/* Address 1, coordinated by address 0. */
static inline struct message order(enum message_kind kind, uint64_t round) {
        struct message m = { .kind = kind,
                             .from = 0,
                             .to = 1,
                             .instance = 5,
                             .term = 256,
                             .round = round,
                             .stamp = NOW,
                             .generation = first,
                             .comm = first,
                             .n_words = 1,
                             .set = { 3 },
                             .world = 2 };

        return m;
}

static inline void tell(struct message m) {
        node_receive(&node, NOW, &m);
}

static inline void start_node(void) {
        struct membership_request request = member(1, 1);
        struct message m = order(ORDER_NEWGEN, 1);

        forget();
        node_init(&node,
                  &(struct node_config){ .address = 1,
                                         .candidates = 1,
                                         .instance = 5,
                                         .host = 1,
                                         .n_lanes = 2,
                                         .window = 2,
                                         .times = times,
                                         .room = { node_memory, room.members, room.tracks, room.nodes } },
                  NOW, &out);
        node_join(&node, NOW, &request, &(struct tag){ 0 });
        m.n_members = 1;
        m.member_of[0] = (struct message_member){ .request = request, .in = true, .rank = 1 };
        m.torn = true;
        tell(m);
        node_built(&node, NOW, first, (struct nodeset){ 0 });
        assert_int_equal(node.phase, NODE_RUNNING);
        tell(order(ORDER_RUN, 2));
        forget();
}

/* A node in that phase, through the orders that lead there. */
static inline void reach(enum node_phase phase) {
        static const uint64_t planned[LIMIT_LANES] = { 1, 0 };
        struct message m;

        start_node();
        if (phase == NODE_RUNNING)
                return;
        assert_true(node_open(&node, NOW, first, TRACK_STEP, planned));
        tell(order(ORDER_FREEZE, 3));
        if (phase == NODE_FROZEN)
                return;
        if (phase == NODE_FILLING) {
                m = order(ORDER_CUT, 4);
                m.seq[0] = 2;
                tell(m);
                return;
        }
        tell(order(ORDER_ABORT, 4));
        if (phase == NODE_ABORTING)
                return;
        node_aborted(&node, NOW, first);
        if (phase == NODE_ABORTED)
                return;
        tell(order(ORDER_VERDICT, 5));
        if (phase == NODE_SETTLING)
                return;
        node_quiet(&node, NOW, first, TRACK_STEP);
}
