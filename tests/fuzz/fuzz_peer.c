/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons: what is decoded is valid, and the same after it was encoded and decoded again.
 * Then a coordinator and the two nodes of its job hear it, as it is and as one of theirs: whatever it says,
 * they say nothing that is not valid, and no assertion fails.
 */
#include "fuzz.h"

#include <string.h>

#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"
#include "rendezvous/peer.h"

#define NODES 2u
#define ROOM_NODES 4u
#define ROOM_MEMBERS 6u
#define ROOM_TRACKS 4u
#define LETTERS 64u /* that are delivered after one cause: what is more is lost */
#define ROUNDS 12u
#define HEARTBEAT 100u

/* What has happened before the message comes. */
enum scene { FORMING, STEPPING, HOLDING, FROZEN, SCENES };

static const struct machine_times times = { HEARTBEAT, 300, 500, 900, 400, 400 };

static struct node node[NODES];
static struct coordinator coordinator;
static struct effects effects;
static struct message letter[LETTERS];
static unsigned n_letters;
static uint64_t now;
static _Alignas(max_align_t) unsigned char node_memory[NODES][1u << 16], coordinator_memory[1u << 17];

static void send(const struct message *message) {
        must(message_valid(message));
        if (n_letters < LETTERS)
                message_copy(&letter[n_letters++], message);
}

/* The engine and the members do at once what they are asked for. */
static void act(struct node *of, const struct action *action) {
        if (action->kind == ACTION_BUILD)
                node_built(of, now, action->comm, (struct nodeset){ 0 });
        else if (action->kind == ACTION_ABORT)
                node_aborted(of, now, action->comm);
        else if (action->kind == ACTION_LAUNCH)
                node_done(of, now, action->comm, action->lane, action->seq, 1);
        else if (action->kind == ACTION_CANCEL)
                node_quiet(of, now, action->generation, action->track);
}

static void carry_out(const struct effect *effect) {
        if (effect->message != NULL)
                send(effect->message);
        else
                act(effect->owner, effect->action);
}

static void deliver(const struct message *message) {
        if (message->kind >= ANSWER_REPORT)
                coordinator_receive(&coordinator, now, message);
        else if (message->to < NODES)
                node_receive(&node[message->to], now, message);
        effects_drain(&effects, carry_out);
}

static void pump(void) {
        for (unsigned i = 0; i < n_letters; i++)
                deliver(&letter[i]); /* what comes of it goes after it, as long as there is room */
        n_letters = 0;
}

static void pass(unsigned rounds) {
        for (unsigned i = 0; i < rounds; i++) {
                now += HEARTBEAT;
                coordinator_tick(&coordinator, now);
                effects_drain(&effects, carry_out);
                for (uint32_t n = 0; n < NODES; n++) {
                        node_tick(&node[n], now);
                        effects_drain(&effects, carry_out);
                }
                pump();
        }
}

static void join(uint32_t n) {
        struct membership_request request = { .member = member_id(n, 5, 1),
                                              .pid = 100,
                                              .min_world = NODES,
                                              .max_world = NODES,
                                              .incarnation = 1,
                                              .grace = 5 * HEARTBEAT };

        node_join(&node[n], now, &request, &(struct tag){ 0 });
        node_agree(&node[n], now, 0, 77, false);
        effects_drain(&effects, carry_out);
}

/* Of a job whose nodes agree on launches, or not. */
static void begin(bool agreed) {
        struct room room = { .members = ROOM_MEMBERS, .tracks = ROOM_TRACKS, .nodes = ROOM_NODES };
        struct coordinator_config config = { .nonce = 7,
                                             .incarnation = 1,
                                             .name = "j",
                                             .times = times,
                                             .n_texts = LIMIT_REFUSALS,
                                             .room = room };

        n_letters = 0;
        now = 1000;
        config.room.memory = coordinator_memory;
        must(coordinator_bytes(&config) <= sizeof(coordinator_memory));
        must(node_bytes(&room) <= sizeof(node_memory[0]));
        coordinator_init(&coordinator, &config, now, &(struct outlet){ .effects = &effects });
        for (uint32_t n = 0; n < NODES; n++) {
                struct node_config own = { .address = n,
                                           .host = n,
                                           .instance = 5,
                                           .n_lanes = 2,
                                           .window = 2,
                                           .agreed = agreed,
                                           .incarnation = 1,
                                           .name = "j",
                                           .times = times,
                                           .room = room };

                own.room.memory = node_memory[n];
                node_init(&node[n], &own, now, &(struct outlet){ .effects = &effects, .owner = &node[n] });
        }
        join(0);
}

static void step(uint32_t n, bool whole) {
        static const uint64_t planned[LIMIT_LANES] = { 1 };

        node_open(&node[n], now, node[n].generation, TRACK_STEP, planned);
        if (whole)
                node_offer(&node[n], now, node[n].generation, TRACK_STEP, 0);
        if (whole)
                node_full(&node[n], now, node[n].generation, TRACK_STEP);
        effects_drain(&effects, carry_out);
}

static void reach(enum scene scene) {
        begin(scene == HOLDING);
        pass(3);
        if (scene == FORMING)
                return;
        join(1);
        pass(6);
        must(node[0].phase == NODE_RUNNING && node[1].phase == NODE_RUNNING && node[1].plan[0].open);
        step(0, true);
        step(1, false);
        if (scene == HOLDING) { /* somebody waits for a place */
                struct membership_request late = { .member = member_id(1, 5, 2),
                                                   .min_world = NODES,
                                                   .max_world = NODES,
                                                   .incarnation = 1,
                                                   .spare = true };

                node_join(&node[1], now, &late, &(struct tag){ 0 });
        }
        if (scene == FROZEN)
                node_lose(&node[1], now, member_id(1, 5, 1), 1);
        effects_drain(&effects, carry_out);
        pass(1);
}

/* As one of this job would say it now. */
static void fit(struct message *message) {
        const struct node *of =
                &node[message->kind >= ANSWER_REPORT ? message->from % NODES : message->to % NODES];

        if (message->kind >= ANSWER_REPORT) {
                message->from = of->config.address;
                message->to = 0;
                message->stamp = of->stamp + 1;
                message->round = coordinator.round;
        } else {
                message->from = 0;
                message->to = of->config.address;
                message->stamp = of->stamp;
                message->round = of->round + 1;
        }
        message->instance = of->config.instance;
        message->term = of->term > 0 ? of->term : 1;
        message->generation = of->generation;
        message->comm = of->comm;
        if (message->kind == ORDER_NEWGEN)
                message->generation.number++;
        for (uint32_t i = 0; i < message->n_members && message->kind < ORDER_REFUSE; i++)
                message->member_of[i].request.member =
                        member_id(of->config.address, 5,
                                  member_id_count(message->member_of[i].request.member));
}

static void hear(const struct message *message) {
        static struct message fitted;

        for (int scene = FORMING; scene < SCENES; scene++) {
                reach((enum scene)scene);
                deliver(message);
                message_copy(&fitted, message);
                fit(&fitted);
                if (message_valid(&fitted))
                        deliver(&fitted);
                pump();
                pass(ROUNDS);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
        static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
        static struct message first, second;
        static uint8_t bytes[PEER_MAX], again[PEER_MAX];
        const char *why = NULL;
        ssize_t n;

        if (effects.first == NULL)
                must(effects_init(&effects, EFFECTS_ROOM) == 0);
        if (!peer_decode(&scratch, data, size, &first, &why)) {
                must(why != NULL);
                return 0;
        }
        must(why == NULL && message_valid(&first));
        must(message_bytes(&first) <= sizeof(first));
        n = peer_encode(&scratch, &first, bytes);
        must(n > 0 && n <= (ssize_t)PEER_MAX);
        must(peer_decode(&scratch, bytes, (size_t)n, &second, &why));
        must(peer_encode(&scratch, &second, again) == n && memcmp(bytes, again, (size_t)n) == 0);
        hear(&first);
        return 0;
}
