/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node and coordinator of a job on one node, in one process: nothing is lost between them, nobody is ever
 * silent, and nothing but the waits of members depends on the time. What is delivered is the latest answer
 * and the latest order.
 */
#pragma once

#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"

#define NEVER (UINT64_C(1) << 60)
#define NOW (UINT64_C(1) << 50) /* 35 years after the start of the clock */
#define SECOND 1000000u
#define MAX_ACTED 128u

static struct node node;
static void *node_memory, *coordinator_memory;
static struct coordinator coordinator;
static struct message answer, command, places, refusals[8];
static bool has_answer, has_order, has_places;
static unsigned n_refusals;
static struct effects effects;
static struct action acted[MAX_ACTED];
static char texts[MAX_ACTED][sizeof(((struct refusal *)NULL)->text)];
static unsigned n_acted;
static uint64_t now;

static const struct machine_times times = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER };
static const uint64_t planned[LIMIT_LANES] = { 1 };

static inline void deliver_later(const struct message *message) {
        struct message *into = &answer;

        if (message->kind == ORDER_REFUSE) {
                assert_true(n_refusals < 8);
                into = &refusals[n_refusals++];
        } else if (message->kind == ORDER_PLACES) {
                into = &places;
                has_places = true;
        } else if (message->kind < ANSWER_REPORT) {
                into = &command;
                has_order = true;
        } else {
                has_answer = true;
        }
        message_copy(into, message);
}

static inline void keep(const struct effect *effect) {
        const struct action *action = effect->action;

        if (effect->message != NULL) {
                deliver_later(effect->message);
                return;
        }
        assert_true(n_acted < MAX_ACTED);
        if (action->kind == ACTION_REFUSED)
                strcpy(texts[n_acted], action->refusal->text);
        acted[n_acted++] = *action;
}

/* Takes over what the machines have appended since. */
static inline void pull(void) {
        effects_drain(&effects, keep);
}

static inline void forget(void) {
        pull();
        n_acted = 0;
}

static inline void pump(void) {
        pull();
        while (has_answer || has_order || has_places || n_refusals > 0) {
                if (n_refusals > 0) {
                        struct message refusal = refusals[--n_refusals];

                        node_receive(&node, now, &refusal);
                } else if (has_places) {
                        has_places = false;
                        node_receive(&node, now, &places);
                } else if (has_order) {
                        has_order = false;
                        node_receive(&node, now, &command);
                } else {
                        has_answer = false;
                        coordinator_receive(&coordinator, now, &answer);
                }
                pull();
        }
}

static inline void start(void) {
        struct room room = { .members = LIMIT_SEATS, .tracks = LIMIT_TRACKS, .nodes = 1 };
        struct node_config own = { .candidates = 1,
                                   .instance = 1,
                                   .n_lanes = 2,
                                   .window = 2,
                                   .incarnation = 1,
                                   .name = "j",
                                   .times = times,
                                   .room = room };
        struct coordinator_config config = { .candidates = 1,
                                             .floor = 1,
                                             .nonce = 7,
                                             .incarnation = 1,
                                             .alone = true,
                                             .name = "j",
                                             .times = times,
                                             .n_texts = LIMIT_REFUSALS,
                                             .room = room };
        struct outlet out = { .effects = &effects };

        if (effects.room == NULL)
                assert_int_equal(effects_init(&effects, EFFECTS_ROOM), 0);
        free(node_memory);
        free(coordinator_memory);
        node_memory = malloc(node_bytes(&room));
        coordinator_memory = malloc(coordinator_bytes(&config));
        own.room.memory = node_memory;
        config.room.memory = coordinator_memory;
        pull();
        now = NOW;
        has_answer = has_order = has_places = false;
        n_refusals = n_acted = 0;
        node_init(&node, &own, now, &out);
        coordinator_init(&coordinator, &config, now, &out);
}

/* Other memory for both, with room for that much. What was there before is noise. */
static inline void move_machines(uint32_t members, uint32_t tracks) {
        struct room room = { .members = members, .tracks = tracks, .nodes = 1 }, old = node.config.room;
        struct coordinator_config config = coordinator.config, old_config = config;

        config.room = room;
        room.memory = node_memory = malloc(node_bytes(&room));
        memset(node_memory, 0x5A, node_bytes(&room));
        node_move(&node, &room);
        memset(old.memory, 0xA5, node_bytes(&old));
        free(old.memory);
        room.memory = coordinator_memory = malloc(coordinator_bytes(&config));
        memset(coordinator_memory, 0x5A, coordinator_bytes(&config));
        coordinator_move(&coordinator, &room);
        memset(old_config.room.memory, 0xA5, coordinator_bytes(&old_config));
        free(old_config.room.memory);
}

static inline struct membership_request request(uint64_t id, uint32_t least, uint32_t most) {
        return (struct membership_request){ .member = id,
                                            .pid = 100 + (int32_t)id,
                                            .min_world = least,
                                            .max_world = most,
                                            .adapts = true,
                                            .grace = SECOND,
                                            .last_call = SECOND,
                                            .incarnation = 1 };
}

static inline void join(struct membership_request request) {
        node_join(&node, now, &request, &(struct tag){ 0 });
        pump();
}

/* The latest action of that kind; NULL: none. */
static inline const struct action *latest(enum action_kind kind) {
        pull();
        for (unsigned i = n_acted; i-- > 0;)
                if (acted[i].kind == kind)
                        return &acted[i];
        return NULL;
}

static inline unsigned count(enum action_kind kind) {
        unsigned n = 0;

        pull();
        for (unsigned i = 0; i < n_acted; i++)
                n += acted[i].kind == kind;
        return n;
}

static inline const char *text_of(const struct action *action) {
        return texts[action - acted];
}

static inline void build(void) {
        const struct action *action = latest(ACTION_BUILD);

        if (action != NULL)
                node_built(&node, now, action->comm, (struct nodeset){ 0 });
        pump();
}

/* A world of that many members, 1 … n, which may grow. */
static inline void form(uint32_t n, uint32_t least, uint32_t most) {
        start();
        for (uint64_t id = 1; id <= n; id++)
                join(request(id, least, most));
        if (n < most) {
                now = membership_deadline(&coordinator.membership);
                coordinator_tick(&coordinator, now);
                pump();
        }
        build();
        assert_int_equal(node.phase, NODE_RUNNING);
        assert_int_equal(coordinator_order(&coordinator), ORDER_RUN);
        assert_int_equal(count(ACTION_GENERATION), n);
        forget();
}

static inline void lose(uint64_t member, uint32_t cause) {
        node_lose(&node, now, member, cause);
        pump();
}

static inline void open_unit(uint32_t track) {
        assert_true(node_open(&node, now, node.generation, track, planned));
        pump();
}

static inline void commit(uint32_t track) {
        node_full(&node, now, node.generation, track);
        node_landed(&node, now, node.generation, track);
        pump();
}

static inline void quiet(uint32_t track) {
        node_quiet(&node, now, node.generation, track);
        pump();
}
