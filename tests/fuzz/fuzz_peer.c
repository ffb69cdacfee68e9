/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons. The bytes are read as an order and as a report: each message that is decoded is
 * valid, and the same after it was encoded and decoded again. Then a coordinator and the two nodes of its job
 * receive it, as it is, and changed so that it fits their job: whatever it says, they send only valid
 * messages, and no assertion fails.
 */
#include "fuzz.h"

#include <string.h>

#include "rendezvous/wire/peer.h"
#include "tests/unit/rig/machines.h"

#define NODES 2u
#define LETTERS 48u /* that are delivered after one cause; further ones are lost */
#define ROUNDS 12u
#define HEARTBEAT 100u

/* The state of the job when the message comes. */
enum scene { FORMING, STEPPING, HOLDING, FROZEN, SCENES };

static const struct machine_times times = { HEARTBEAT, 300, 500, 900, 400, 400 };
static const struct membership_request wish = {
        .pid = 100, .min_world = NODES, .max_world = NODES, .incarnation = 1, .grace = 5 * HEARTBEAT
};

/* Collectives are done at once, like all else. */
static void acted(uint32_t job, uint32_t at, const struct action *action) {
        if (action->kind == ACTION_LAUNCH)
                node_done(machines_node(0, at), w.now, action->comm, action->lane, action->seq, 1);
}

static void pump(void) {
        for (unsigned i = 0; i < LETTERS && machines_deliver(); i++)
                ;
        w.n_letters = 0;
}

static void pass(unsigned rounds) {
        for (; rounds > 0; rounds--) {
                w.now += HEARTBEAT;
                coordinator_tick(&w.job[0].coordinator, w.now);
                for (uint32_t n = 0; n < NODES; n++) {
                        machines_pull();
                        node_tick(machines_node(0, n), w.now);
                }
                pump();
        }
}

static void join(uint32_t n, uint64_t count, bool spare) {
        struct membership_request request = wish;

        request.member = member_id(n, MACHINES_INSTANCE, count);
        request.spare = spare;
        node_join(machines_node(0, n), w.now, &request, &(struct tag){ 0 });
        if (!spare)
                node_agree(machines_node(0, n), w.now, 0, 77, false);
        machines_pull();
}

/* Begins a job whose nodes agree on launches, or one whose nodes do not. */
static void begin(bool agreed) {
        struct room room = { .members = 6, .tracks = 4, .nodes = 4 };

        machines_begin(1, NODES, &times);
        w.acted = acted;
        machines_start_coordinator(0,
                                   (struct coordinator_config){ .nonce = 7, .incarnation = 1, .room = room });
        for (uint32_t n = 0; n < NODES; n++)
                machines_start_node(0, n,
                                    (struct node_config){ .host = n,
                                                          .instance = MACHINES_INSTANCE,
                                                          .n_lanes = 2,
                                                          .window = 2,
                                                          .agreed = agreed,
                                                          .incarnation = 1,
                                                          .room = room });
        join(0, 1, false);
}

static void step(uint32_t n, bool whole) {
        static const uint64_t planned[LIMIT_LANES] = { 1 };

        node_open(machines_node(0, n), w.now, machines_node(0, n)->generation, TRACK_STEP, planned);
        if (whole)
                node_offer(machines_node(0, n), w.now, machines_node(0, n)->generation, TRACK_STEP, 0);
        if (whole)
                node_full(machines_node(0, n), w.now, machines_node(0, n)->generation, TRACK_STEP);
        machines_pull();
}

static void reach(enum scene scene) {
        begin(scene == HOLDING);
        pass(3);
        if (scene == FORMING)
                return;
        join(1, 1, false);
        pass(6);
        must(machines_node(0, 0)->phase == NODE_RUNNING && machines_node(0, 1)->phase == NODE_RUNNING &&
             machines_node(0, 1)->plan[0].open);
        step(0, true);
        step(1, false);
        if (scene == HOLDING) /* a spare waits for a place */
                join(1, 2, true);
        if (scene == FROZEN)
                node_lose(machines_node(0, 1), w.now, member_id(1, MACHINES_INSTANCE, 1), 1);
        machines_pull();
        pass(1);
}

/* Changes the order so that the coordinator of this job could send it now. */
static void fit_order(struct order *order) {
        const struct node *of = machines_node(0, order->to % NODES);

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
                order->member_of[i].member = member_id(of->config.address, MACHINES_INSTANCE,
                                                       member_id_count(order->member_of[i].member));
}

/* Changes the report so that a node of this job could send it now. */
static void fit_report(struct report *report) {
        const struct node *of = machines_node(0, report->from % NODES);

        report->from = of->config.address;
        report->instance = of->config.instance;
        report->term = of->term > 0 ? of->term : 1;
        report->round = w.job[0].coordinator.round;
        report->stamp = of->stamp + 1;
        report->generation = of->generation;
        report->comm = of->comm;
        for (uint32_t i = 0; i < report->n_members; i++)
                report->member_of[i].request.member =
                        member_id(of->config.address, MACHINES_INSTANCE,
                                  member_id_count(report->member_of[i].request.member));
}

static void hear_at(const struct order *order) {
        if (order->to < NODES)
                node_receive(machines_node(0, order->to), w.now, order);
        machines_pull();
}

static void hear_order(const struct order *order) {
        static struct order fitted;

        for (int scene = FORMING; scene < SCENES; scene++) {
                reach((enum scene)scene);
                hear_at(order);
                order_copy(&fitted, order);
                fit_order(&fitted);
                if (order_valid(&fitted))
                        hear_at(&fitted);
                pump();
                pass(ROUNDS);
        }
}

static void hear_report(const struct report *report) {
        static struct report fitted;

        for (int scene = FORMING; scene < SCENES; scene++) {
                reach((enum scene)scene);
                machines_hear(0, report);
                report_copy(&fitted, report);
                fit_report(&fitted);
                if (report_valid(&fitted))
                        machines_hear(0, &fitted);
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
        try_order(data, size);
        try_report(data, size);
        return 0;
}
