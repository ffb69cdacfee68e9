/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons. The bytes are read as an order and as a report: each message that is decoded is
 * valid, and the same after it was encoded and decoded again. Then a coordinator and the two nodes of its job
 * receive it, as it is, and changed so that it fits their job: whatever it says, they send only valid
 * messages, and no assertion fails.
 */
#include "fuzz.h"

#include <string.h>

#include "rendezvous/machine/coordinator.h"
#include "rendezvous/machine/node.h"
#include "rendezvous/wire/peer.h"

#define NODES 2u
#define ROOM_NODES 4u
#define ROOM_MEMBERS 6u
#define ROOM_TRACKS 4u
#define LETTERS 64u /* that are delivered after one cause; further ones are lost */
#define ROUNDS 12u
#define HEARTBEAT 100u

/* The state of the job when the message comes. */
enum scene { FORMING, STEPPING, HOLDING, FROZEN, SCENES };

static const struct machine_times times = { HEARTBEAT, 300, 500, 900, 400, 400 };

static struct node node[NODES];
static struct coordinator coordinator;
static struct effects effects;
static struct letter {
        bool reports;
        union {
                struct order order;
                struct report report;
        };
} letter[LETTERS];
static unsigned n_letters;
static uint64_t now;
static _Alignas(max_align_t) unsigned char node_memory[NODES][1u << 16], coordinator_memory[1u << 17];

static void send_order(const struct order *order) {
        must(order_valid(order));
        if (n_letters == LETTERS)
                return;
        letter[n_letters].reports = false;
        order_copy(&letter[n_letters++].order, order);
}

static void send_report(const struct report *report) {
        must(report_valid(report));
        if (n_letters == LETTERS)
                return;
        letter[n_letters].reports = true;
        report_copy(&letter[n_letters++].report, report);
}

/* Carries actions of the engine and of the members out at once. */
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
        if (effect->order != NULL)
                send_order(effect->order);
        else if (effect->report != NULL)
                send_report(effect->report);
        else
                act(effect->owner, effect->action);
}

static void deliver_order(const struct order *order) {
        if (order->to < NODES)
                node_receive(&node[order->to], now, order);
        effects_drain(&effects, carry_out);
}

static void deliver_report(const struct report *report) {
        coordinator_receive(&coordinator, now, report);
        effects_drain(&effects, carry_out);
}

static void pump(void) {
        for (unsigned i = 0; i < n_letters;
             i++) /* its effects go to the end of the list, as long as there is room */
                if (letter[i].reports)
                        deliver_report(&letter[i].report);
                else
                        deliver_order(&letter[i].order);
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

/* Begins a job whose nodes agree on launches, or one whose nodes do not. */
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
        if (scene == HOLDING) { /* a spare waits for a place */
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

/* Changes the order so that the coordinator of this job could send it now. */
static void fit_order(struct order *order) {
        const struct node *of = &node[order->to % NODES];

        order->to = of->config.address;
        order->instance = of->config.instance;
        order->term = of->term > 0 ? of->term : 1;
        order->round = of->round + 1;
        order->stamp = of->stamp;
        order->generation = of->generation;
        order->comm = of->comm;
        if (order->kind == ORDER_NEWGEN)
                order->generation.number++;
        for (uint32_t i = 0; i < order->n_members; i++)
                order->member_of[i].member =
                        member_id(of->config.address, 5, member_id_count(order->member_of[i].member));
}

/* Changes the report so that a node of this job could send it now. */
static void fit_report(struct report *report) {
        const struct node *of = &node[report->from % NODES];

        report->from = of->config.address;
        report->instance = of->config.instance;
        report->term = of->term > 0 ? of->term : 1;
        report->round = coordinator.round;
        report->stamp = of->stamp + 1;
        report->generation = of->generation;
        report->comm = of->comm;
        for (uint32_t i = 0; i < report->n_members; i++)
                report->member_of[i].request.member =
                        member_id(of->config.address, 5,
                                  member_id_count(report->member_of[i].request.member));
}

static void hear_order(const struct order *order) {
        static struct order fitted;

        for (int scene = FORMING; scene < SCENES; scene++) {
                reach((enum scene)scene);
                deliver_order(order);
                order_copy(&fitted, order);
                fit_order(&fitted);
                if (order_valid(&fitted))
                        deliver_order(&fitted);
                pump();
                pass(ROUNDS);
        }
}

static void hear_report(const struct report *report) {
        static struct report fitted;

        for (int scene = FORMING; scene < SCENES; scene++) {
                reach((enum scene)scene);
                deliver_report(report);
                report_copy(&fitted, report);
                fit_report(&fitted);
                if (report_valid(&fitted))
                        deliver_report(&fitted);
                pump();
                pass(ROUNDS);
        }
}

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static uint8_t bytes[PEER_MAX], again[PEER_MAX];

static void try_order(const uint8_t *data, size_t size) {
        static struct order first, second;
        const char *why = NULL;

        if (!peer_decode_order(&scratch, data, size, &first, &why)) {
                must(why != NULL);
                return;
        }
        must(why == NULL && order_valid(&first) && order_bytes(&first) <= sizeof(first));
        ssize_t n = peer_encode_order(&scratch, &first, bytes);
        must(n > 0 && n <= (ssize_t)PEER_MAX);
        must(peer_decode_order(&scratch, bytes, (size_t)n, &second, &why));
        must(peer_encode_order(&scratch, &second, again) == n && memcmp(bytes, again, (size_t)n) == 0);
        hear_order(&first);
}

static void try_report(const uint8_t *data, size_t size) {
        static struct report first, second;
        const char *why = NULL;

        if (!peer_decode_report(&scratch, data, size, &first, &why)) {
                must(why != NULL);
                return;
        }
        must(why == NULL && report_valid(&first) && report_bytes(&first) <= sizeof(first));
        ssize_t n = peer_encode_report(&scratch, &first, bytes);
        must(n > 0 && n <= (ssize_t)PEER_MAX);
        must(peer_decode_report(&scratch, bytes, (size_t)n, &second, &why));
        must(peer_encode_report(&scratch, &second, again) == n && memcmp(bytes, again, (size_t)n) == 0);
        hear_report(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        if (effects.first == NULL)
                must(effects_init(&effects, EFFECTS_ROOM) == 0);
        try_order(data, size);
        try_report(data, size);
        return 0;
}
