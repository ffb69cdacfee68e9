/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and coordinators in one process. */
#include "machines.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/recount.h"

#define GUARD 64u /* bytes after the memory of a machine */
#define PATTERN 0xA5

struct machines w;
const struct machine_times machines_usual = { .heartbeat = MACHINES_HEARTBEAT,
                                              .patience = 5 * MACHINES_HEARTBEAT,
                                              .death = 10 * MACHINES_HEARTBEAT,
                                              .abandon = 20 * MACHINES_HEARTBEAT,
                                              .drain = 4 * MACHINES_HEARTBEAT,
                                              .build = 6 * MACHINES_HEARTBEAT };
const struct machine_times machines_never = { MACHINES_NEVER, MACHINES_NEVER, MACHINES_NEVER,
                                              MACHINES_NEVER, MACHINES_NEVER, MACHINES_NEVER };

/* ---- memory ---- */

static void *guarded(size_t bytes) {
        unsigned char *memory = malloc(bytes + GUARD);

        memset(memory, 0x5A, bytes);
        memset(memory + bytes, PATTERN, GUARD);
        return memory;
}

static void free_guarded(unsigned char *memory, size_t bytes) {
        for (unsigned i = 0; memory != NULL && i < GUARD; i++)
                assert_int_equal(memory[bytes + i], PATTERN);
        if (memory != NULL)
                memset(memory, PATTERN, bytes);
        free(memory);
}

static void free_coordinator(struct machines_job *job) {
        if (job->coordinated)
                free_guarded(job->memory, coordinator_bytes(&job->coordinator.config));
        job->coordinated = false;
}

static void free_node(struct machines_node *at) {
        if (at->lives)
                free_guarded(at->memory, node_bytes(&at->node.config.room));
        at->lives = false;
}

void machines_begin(uint32_t n_jobs, uint32_t n_nodes, const struct machine_times *times) {
        machines_end();
        w.n_jobs = n_jobs;
        w.n_nodes = n_nodes;
        w.times = *times;
        w.now = MACHINES_NOW;
        w.floor = 0;
        w.n_letters = w.n_kept = 0;
        w.keeps = w.loses = 0;
        w.is_deaf = w.builds = w.aborts = w.quiets = false;
        if (w.effects.first == NULL)
                assert_int_equal(effects_init(&w.effects, EFFECTS_ROOM), 0);
}

void machines_end(void) {
        for (uint32_t job = 0; job < w.n_jobs; job++) {
                free_coordinator(&w.job[job]);
                for (uint32_t node = 0; node < w.n_nodes; node++) {
                        free_node(&w.job[job].at[node]);
                        effects_forget(&w.effects, &w.job[job].at[node]);
                }
        }
        w.n_jobs = w.n_nodes = 0;
}

static struct outlet outlet_of(uint32_t job, uint32_t node) {
        return (struct outlet){ .effects = &w.effects, .owner = &w.job[job].at[node] };
}

void machines_start_coordinator(uint32_t job, struct coordinator_config config) {
        struct machines_job *of = &w.job[job];
        struct outlet out = outlet_of(job, 0);

        free_coordinator(of);
        config.floor = ++w.floor;
        config.name = "j";
        config.times = w.times;
        config.n_texts = LIMIT_REFUSALS;
        config.room.memory = of->memory = guarded(coordinator_bytes(&config));
        coordinator_init(&of->coordinator, &config, w.now, &out);
        of->coordinated = true;
}

void machines_start_node(uint32_t job, uint32_t node, struct node_config config) {
        struct machines_node *at = &w.job[job].at[node];
        struct outlet out = outlet_of(job, node);

        free_node(at);
        config.address = node;
        config.name = "j";
        config.times = w.times;
        config.room.memory = at->memory = guarded(node_bytes(&config.room));
        node_init(&at->node, &config, w.now, &out);
        memset(at->done, 0, sizeof(at->done));
        at->lives = true;
}

static void move_coordinator(struct machines_job *job, const struct room *room) {
        struct coordinator_config former = job->coordinator.config, config = former;
        struct room moved = *room;

        config.room = moved;
        moved.nodes = config.room.nodes = former.room.nodes;
        moved.memory = job->memory = guarded(coordinator_bytes(&config));
        coordinator_move(&job->coordinator, &moved);
        free_guarded(former.room.memory, coordinator_bytes(&former));
}

void machines_move(uint32_t members, uint32_t tracks) {
        struct room room = { .members = members, .tracks = tracks };

        for (uint32_t job = 0; job < w.n_jobs; job++) {
                for (uint32_t node = 0; node < w.n_nodes; node++) {
                        struct machines_node *at = &w.job[job].at[node];
                        struct room former = at->node.config.room;

                        room.nodes = former.nodes;
                        room.memory = at->memory = guarded(node_bytes(&room));
                        node_move(&at->node, &room);
                        free_guarded(former.memory, node_bytes(&former));
                }
                move_coordinator(&w.job[job], &room);
        }
}

/* ---- what machines want done ---- */

static struct letter *post(uint32_t job, bool reports) {
        struct letter *letter = &w.letter[(w.first + w.n_letters++) % MACHINES_LETTERS];

        assert_true(w.n_letters <= MACHINES_LETTERS);
        letter->job = job;
        letter->reports = reports;
        return letter;
}

static void act(struct machines_node *at, const struct action *action) {
        switch (action->kind) {
        case ACTION_BUILD:
                memset(at->done, 0, sizeof(at->done));
                if (!w.builds)
                        node_built(&at->node, w.now, action->comm, (struct nodeset){ 0 });
                break;
        case ACTION_ABORT:
                if (!w.aborts)
                        node_aborted(&at->node, w.now, action->comm);
                break;
        case ACTION_CANCEL:
                if (!w.quiets)
                        node_quiet(&at->node, w.now, action->generation, action->track);
                break;
        default: break;
        }
}

static void carry_out(const struct effect *effect) {
        struct machines_node *at = effect->owner;
        uint32_t job = at >= w.job[1].at ? 1 : 0;

        if (effect->order != NULL)
                order_copy(&post(job, false)->order, effect->order);
        if (effect->report != NULL)
                report_copy(&post(job, true)->report, effect->report);
        if (effect->action == NULL)
                return;
        if (w.acted != NULL)
                w.acted(job, (uint32_t)(at - w.job[job].at), effect->action);
        act(at, effect->action);
}

void machines_pull(void) {
        effects_drain(&w.effects, carry_out);
}

void machines_hear(uint32_t job, const struct report *report) {
        struct coordinator *coordinator = &w.job[job].coordinator;

        coordinator_receive(coordinator, w.now, report);
        assert_true(counts_agree(coordinator));
        machines_pull();
}

static void deliver_report(uint32_t of, const struct report *report) {
        assert_true(report_valid(report));
        if (w.reported != NULL)
                w.reported(of, report);
        if (w.job[of].coordinated && !w.is_deaf)
                machines_hear(of, report);
}

static void deliver_order(uint32_t of, const struct order *order) {
        struct machines_job *job = &w.job[of];

        if (w.ordered != NULL)
                w.ordered(of, order);
        if ((w.loses >> order->to & 1) != 0 || order->to >= w.n_nodes || !job->at[order->to].lives)
                return;
        node_receive(&job->at[order->to].node, w.now, order);
        machines_pull();
}

static void deliver(const struct letter *letter) {
        if (letter->reports) {
                deliver_report(letter->job, &letter->report);
                return;
        }
        assert_true(order_valid(&letter->order));
        if ((w.keeps >> letter->order.to & 1) == 0) {
                deliver_order(letter->job, &letter->order);
                return;
        }
        assert_true(w.n_kept < MACHINES_LETTERS);
        w.kept[w.n_kept++] = *letter;
}

bool machines_deliver(void) {
        machines_pull();
        if (w.n_letters == 0)
                return false;
        deliver(&w.letter[w.first]);
        w.first = (w.first + 1) % MACHINES_LETTERS;
        w.n_letters--;
        return true;
}

void machines_pump(void) {
        for (unsigned i = 0; machines_deliver(); i++)
                assert_true(i < 100000);
}

void machines_release(void) {
        unsigned n = w.n_kept;

        w.keeps = w.n_kept = 0;
        for (unsigned i = 0; i < n; i++)
                deliver(&w.kept[i]);
}

void machines_tick(uint64_t us) {
        w.now += us;
        for (uint32_t job = 0; job < w.n_jobs; job++) {
                if (w.job[job].coordinated) {
                        coordinator_tick(&w.job[job].coordinator, w.now);
                        assert_true(counts_agree(&w.job[job].coordinator));
                        machines_pump();
                }
                for (uint32_t node = 0; node < w.n_nodes; node++) {
                        if (w.job[job].at[node].lives)
                                node_tick(&w.job[job].at[node].node, w.now);
                        machines_pump();
                }
        }
}

/* ---- a node that hears what the test says ---- */

/* The order is of the node's generation, or of generation 1 if it has none. */
struct order machines_order(enum order_kind kind) {
        const struct node *node = machines_node(0, MACHINES_LONE);

        return (struct order){ .kind = kind,
                               .to = MACHINES_LONE,
                               .instance = MACHINES_INSTANCE,
                               .term = node->term > 0 ? node->term : MACHINES_TERM,
                               .round = node->round + 1,
                               .stamp = node->stamp,
                               .generation = node->generation.number > 0
                                                     ? node->generation
                                                     : (struct generation){ MACHINES_TERM, 1, 7 },
                               .comm = node->comm.number > 0 || node->generation.number > 0
                                               ? node->comm
                                               : (struct generation){ MACHINES_TERM, 1, 7 },
                               .n_words = 1,
                               .set = { 3 },
                               .world = 2 };
}

void machines_name_member(struct order *order) {
        order->n_members = 1;
        order->member_of[0] = (struct order_member){
                .member = machines_node(0, MACHINES_LONE)->member[0].request.member, .rank = 1, .id = 2
        };
}

void machines_reach(enum node_phase phase, struct node_config config, const struct membership_request *wish) {
        static const enum order_kind orders[] = { ORDER_FREEZE, ORDER_ABORT, ORDER_VERDICT };
        static const uint64_t planned[LIMIT_LANES] = { 1, 0 };
        struct membership_request request = *wish;
        struct node *node;
        struct order m;

        machines_begin(1, MACHINES_LONE + 1, &machines_usual);
        machines_start_node(0, MACHINES_LONE, config);
        w.builds = w.aborts = w.quiets = true;
        node = machines_node(0, MACHINES_LONE);
        request.member = member_id(MACHINES_LONE, MACHINES_INSTANCE, 1);
        node_join(node, w.now, &request, &(struct tag){ 0 });
        m = machines_order(ORDER_NEWGEN);
        machines_name_member(&m);
        m.torn = true;
        node_receive(node, w.now, &m);
        node_built(node, w.now, node->comm, (struct nodeset){ 0 });
        m = machines_order(ORDER_RUN);
        node_receive(node, w.now, &m);
        if (phase != NODE_RUNNING)
                node_open(node, w.now, node->generation, TRACK_STEP, planned);
        for (unsigned i = 0; i < 3 && node->phase != phase; i++) {
                m = machines_order(i == 1 && phase == NODE_FILLING ? ORDER_CUT : orders[i]);
                m.seq[0] = m.kind == ORDER_CUT ? 2 : 0;
                node_receive(node, w.now, &m);
                if (node->phase == NODE_ABORTING && phase != NODE_ABORTING)
                        node_aborted(node, w.now, node->comm);
        }
        if (phase == NODE_SETTLED)
                node_quiet(node, w.now, node->generation, TRACK_STEP);
        machines_pump();
        assert_int_equal(node->phase, phase);
}
