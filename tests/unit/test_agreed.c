/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that agree on launches: nodes and coordinators of two jobs on three daemons, in one process. What is
 * said goes from daemon to daemon in order; a test can keep it, or lose it.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"
#include "rendezvous/peer.h"

#define JOBS 2u
#define NODES 3u
#define ALL ((1u << NODES) - 1)
#define TRACKS 5u /* operations, two plans with lanes of their own, two that share one */
#define SHARED (LIMIT_LANES - 2)
#define OPERATIONS (LIMIT_LANES - 1)
#define WINDOW 2u
#define MOST_LETTERS 64u
#define MOST_LAUNCHES 64u

struct launch {
        uint32_t job, lane, track, kind;
        uint64_t seq, index;
};

struct letter {
        uint32_t job;
        struct message message;
};

static struct {
        struct coordinator coordinator;
        struct node node[NODES];
        uint64_t done[NODES][LIMIT_LANES];
        unsigned committed[NODES], voided[NODES];
        void *coordinator_memory, *node_memory[NODES];
} job[JOBS];

static struct effects effects;
static struct letter letter[MOST_LETTERS], kept[MOST_LETTERS];
static unsigned n_letters, n_kept;
static struct launch launched[NODES][MOST_LAUNCHES]; /* of both jobs, on each daemon */
static unsigned n_launched[NODES];
static unsigned reports, orders;       /* delivered, or lost */
static uint32_t lost_to, kept_from_to; /* daemons to which orders are lost, or are kept */
static uint32_t size;                  /* of the jobs, in nodes */
static uint64_t now, floor_of_terms;

static const struct machine_times times = { .heartbeat = 20000,
                                            .patience = 100000,
                                            .death = 200000,
                                            .abandon = 400000,
                                            .drain = 80000,
                                            .build = 120000,
                                            .lease = 120000 };

/* ---- what the machines want done ---- */

static void post(uint32_t of, const struct message *message) {
        assert_true(n_letters < MOST_LETTERS);
        letter[n_letters].job = of;
        message_copy(&letter[n_letters++].message, message);
}

static void note_launch(uint32_t of, uint32_t at, const struct action *action) {
        assert_true(n_launched[at] < MOST_LAUNCHES);
        launched[at][n_launched[at]++] = (struct launch){
                of, action->lane, action->track, action->launch, action->seq, action->index
        };
}

static void act(uint32_t of, uint32_t at, const struct action *action) {
        struct node *node = &job[of].node[at];

        switch (action->kind) {
        case ACTION_BUILD:
                memset(job[of].done[at], 0, sizeof(job[of].done[at]));
                node_built(node, now, action->comm, (struct nodeset){ 0 });
                break;
        case ACTION_ABORT: node_aborted(node, now, action->comm); break;
        case ACTION_CANCEL: node_quiet(node, now, action->generation, action->track); break;
        case ACTION_LAUNCH: note_launch(of, at, action); break;
        case ACTION_COMMITTED: job[of].committed[at]++; break;
        case ACTION_VOID: job[of].voided[at]++; break;
        default: break;
        }
}

static void carry_out(const struct effect *effect) {
        uint32_t owner = (uint32_t)(uintptr_t)effect->owner;

        if (effect->message != NULL)
                post(owner / NODES, effect->message);
        else
                act(owner / NODES, owner % NODES, effect->action);
}

static void pull(void) {
        effects_drain(&effects, carry_out);
}

static void deliver(const struct letter *l) {
        const struct message *message = &l->message;

        assert_true(message_valid(message));
        if (message->kind >= ANSWER_REPORT) {
                reports++;
                coordinator_receive(&job[l->job].coordinator, now, message);
        } else if (kept_from_to >> message->to & 1) {
                assert_true(n_kept < MOST_LETTERS);
                kept[n_kept++] = *l;
        } else {
                orders += message->kind != ORDER_PLACES;
                if ((lost_to >> message->to & 1) == 0 && message->to < size)
                        node_receive(&job[l->job].node[message->to], now, message);
        }
        pull();
}

static void deliver_first(void) {
        static struct letter first;

        assert_true(n_letters > 0);
        first = letter[0];
        memmove(&letter[0], &letter[1], --n_letters * sizeof(letter[0]));
        deliver(&first);
}

static void pump(void) {
        pull();
        while (n_letters > 0)
                deliver_first();
}

/* What was kept arrives now. */
static void deliver_kept(void) {
        kept_from_to = 0;
        for (unsigned i = 0; i < n_kept; i++)
                deliver(&kept[i]);
        n_kept = 0;
}

/* ---- a world ---- */

static struct room room_of(void *memory) {
        return (struct room){ .memory = memory, .members = NODES + 2, .tracks = TRACKS, .nodes = NODES };
}

static struct outlet outlet_of(uint32_t of, uint32_t at) {
        return (struct outlet){ .effects = &effects, .owner = (void *)(uintptr_t)(of * NODES + at) };
}

static void start_coordinator(uint32_t of) {
        struct coordinator_config config = { .candidates = 1,
                                             .floor = ++floor_of_terms,
                                             .nonce = 7,
                                             .incarnation = 1,
                                             .name = "j",
                                             .times = times,
                                             .n_texts = LIMIT_REFUSALS,
                                             .room = room_of(NULL) };
        struct outlet out = outlet_of(of, 0);

        free(job[of].coordinator_memory);
        job[of].coordinator_memory = malloc(coordinator_bytes(&config));
        config.room.memory = job[of].coordinator_memory;
        coordinator_init(&job[of].coordinator, &config, now, &out);
        coordinator_tick(&job[of].coordinator, now);
        pull();
}

static void start_node(uint32_t of, uint32_t at) {
        struct room room = room_of(NULL);
        struct outlet out = outlet_of(of, at);

        free(job[of].node_memory[at]);
        job[of].node_memory[at] = malloc(node_bytes(&room));
        node_init(&job[of].node[at],
                  &(struct node_config){ .address = at,
                                         .candidates = 1,
                                         .instance = 5,
                                         .host = at,
                                         .n_lanes = LIMIT_LANES,
                                         .window = WINDOW,
                                         .agreed = true,
                                         .incarnation = 1,
                                         .name = "j",
                                         .times = times,
                                         .room = room_of(job[of].node_memory[at]) },
                  now, &out);
}

static void join(uint32_t of, uint32_t at, uint64_t count) {
        struct membership_request request = { .member = member_id(at, 5, count),
                                              .min_world = 2,
                                              .max_world = NODES + 1,
                                              .incarnation = 1,
                                              .last_call = times.heartbeat,
                                              .grace = 10 * times.heartbeat,
                                              .adapts = true };

        node_join(&job[of].node[at], now, &request, &(struct tag){ 0 });
        for (uint32_t plan = TRACK_STEP; plan < TRACKS; plan++)
                node_agree(&job[of].node[at], now, plan, 11 * plan, false);
        pump();
}

/* Everybody says again what was said last. */
static void beat(void) {
        now += times.heartbeat;
        for (uint32_t of = 0; of < JOBS; of++) {
                coordinator_tick(&job[of].coordinator, now);
                pump();
                for (uint32_t at = 0; at < size; at++) {
                        node_tick(&job[of].node[at], now);
                        pump();
                }
        }
}

static void forget(void) {
        memset(n_launched, 0, sizeof(n_launched));
        reports = orders = 0;
}

static bool is_in_force(uint32_t of) {
        bool running = job[of].coordinator.stage == STAGE_RUNNING;

        for (uint32_t at = 0; at < size; at++)
                running &= job[of].node[at].phase == NODE_RUNNING &&
                           job[of].node[at].plan[TRACKS - TRACK_STEP - 1].open;
        return running;
}

static void settle(void) {
        for (unsigned i = 0; !is_in_force(0) || !is_in_force(1); i++) {
                assert_true(i < 40);
                beat();
        }
        forget();
}

/* Two jobs of that many nodes, each with one member. */
static void form(uint32_t nodes) {
        size = nodes;
        lost_to = kept_from_to = 0;
        n_letters = n_kept = 0;
        now = floor_of_terms = 1000000;
        for (uint32_t of = 0; of < JOBS; of++) {
                memset(job[of].done, 0, sizeof(job[of].done));
                memset(job[of].committed, 0, sizeof(job[of].committed));
                memset(job[of].voided, 0, sizeof(job[of].voided));
                start_coordinator(of);
                for (uint32_t at = 0; at < size; at++)
                        start_node(of, at);
                for (uint32_t at = 0; at < size; at++)
                        join(of, at, 1);
        }
        settle();
}

/* ---- what a driver does ---- */

static const struct node_lane *lane_of(uint32_t of, uint32_t at, uint32_t lane) {
        return &job[of].node[at].lane[lane];
}

static void open_unit(uint32_t of, uint32_t at, uint32_t track, uint32_t lane, uint64_t payloads) {
        struct node *node = &job[of].node[at];
        uint64_t planned[LIMIT_LANES] = { 0 };

        planned[lane] = payloads;
        assert_true(node_open(node, now, node->generation, track, planned));
        pump();
}

static void open_everywhere(uint32_t of, uint32_t track, uint32_t lane, uint64_t payloads) {
        for (uint32_t at = 0; at < size; at++)
                open_unit(of, at, track, lane, payloads);
}

static void offer(uint32_t of, uint32_t at, uint32_t track, uint32_t lane) {
        struct node *node = &job[of].node[at];

        node_offer(node, now, node->generation, track, lane);
        pump();
}

static void offer_everywhere(uint32_t of, uint32_t track, uint32_t lane) {
        for (uint32_t at = 0; at < size; at++)
                offer(of, at, track, lane);
}

static void fill_everywhere(uint32_t of, uint32_t track) {
        for (uint32_t at = 0; at < size; at++) {
                node_full(&job[of].node[at], now, job[of].node[at].generation, track);
                pump();
        }
}

/* The next collective of the lane ends on that node. */
static void end_on(uint32_t of, uint32_t at, uint32_t lane) {
        struct node *node = &job[of].node[at];

        node_done(node, now, node->comm, lane, ++job[of].done[at][lane], 1);
        pump();
}

/* … on all of them, which have launched it. */
static void end_everywhere(uint32_t of, uint32_t lane) {
        for (uint32_t at = 0; at < size; at++)
                assert_true(lane_of(of, at, lane)->launched > job[of].done[at][lane]);
        for (uint32_t at = 0; at < size; at++)
                end_on(of, at, lane);
}

static void land_everywhere(uint32_t of, uint32_t track) {
        for (uint32_t at = 0; at < size; at++)
                node_landed(&job[of].node[at], now, job[of].node[at].generation, track);
        pump();
}

static void assert_launched(unsigned n) {
        for (uint32_t at = 0; at < size; at++)
                assert_int_equal(n_launched[at], n);
}

/* All daemons have launched the same, in the same order. */
static void assert_one_order(unsigned n) {
        assert_launched(n);
        for (uint32_t at = 1; at < size; at++)
                assert_memory_equal(launched[at], launched[0], n * sizeof(launched[0][0]));
}

/* ---- tests ---- */

static void nothing_is_launched_before_all_are_ready(void **state) {
        form(3);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer(0, 0, TRACK_STEP, 0);
        offer(0, 2, TRACK_STEP, 0);
        assert_launched(0);
        assert_int_equal(lane_of(0, 0, 0)->ready, 1);
        assert_int_equal(job[0].coordinator.node[0].ready[0], 1);
        assert_int_equal(job[0].coordinator.node[1].ready[0], 0);
        offer(0, 1, TRACK_STEP, 0);
        assert_one_order(1);
        assert_int_equal(launched[0][0].kind, LAUNCH_PAYLOAD);
        assert_int_equal(launched[0][0].seq, 1);
        assert_int_equal(job[0].coordinator.go[0], 1);
}

/* What becomes ready where first makes no difference. */
static void lanes_are_launched_in_one_order(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        open_everywhere(0, TRACK_STEP + 1, 1, 1);
        offer(0, 0, TRACK_STEP, 0);
        offer(0, 1, TRACK_STEP + 1, 1);
        assert_launched(0);
        offer(0, 0, TRACK_STEP + 1, 1);
        assert_one_order(1);
        offer(0, 1, TRACK_STEP, 0);
        assert_one_order(2);
        assert_int_equal(launched[0][0].lane, 1);
        assert_int_equal(launched[0][1].lane, 0);
}

/* One word for two lanes: in the order of the lanes. */
static void one_word_for_several_lanes(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 2);
        open_everywhere(0, TRACK_STEP + 1, 1, 1);
        offer(0, 0, TRACK_STEP + 1, 1);
        offer(0, 0, TRACK_STEP, 0);
        offer(0, 0, TRACK_STEP, 0);
        node_offer(&job[0].node[1], now, job[0].node[1].generation, TRACK_STEP, 0);
        node_offer(&job[0].node[1], now, job[0].node[1].generation, TRACK_STEP + 1, 1);
        node_offer(&job[0].node[1], now, job[0].node[1].generation, TRACK_STEP, 0);
        pull();
        memmove(&letter[0], &letter[2], sizeof(letter[0])); /* only the last one of its reports arrives */
        n_letters = 1;
        pump();
        assert_one_order(3);
        assert_int_equal(launched[0][0].lane, 0);
        assert_int_equal(launched[0][1].lane, 0);
        assert_int_equal(launched[0][2].lane, 1);
}

/* Two jobs on the same daemons. */
static void jobs_are_launched_in_one_order(void **state) {
        form(3);
        for (uint32_t of = 0; of < JOBS; of++)
                open_everywhere(of, TRACK_STEP, 0, 1);
        for (uint32_t at = 0; at < size; at++)
                offer(at == 1, at, TRACK_STEP, 0);
        assert_launched(0);
        kept_from_to = 4; /* the words of both coordinators take their time to the third daemon */
        for (uint32_t at = 0; at < size; at++)
                offer(at != 1, at, TRACK_STEP, 0);
        assert_int_equal(n_launched[2], 0);
        deliver_kept();
        assert_one_order(2);
        assert_true(launched[0][0].job != launched[0][1].job);
}

/* They compare themselves, and are few. */
static void operations_are_not_agreed_on(void **state) {
        form(2);
        open_everywhere(0, TRACK_OPERATION, OPERATIONS, 2);
        offer(0, 1, TRACK_OPERATION, OPERATIONS);
        assert_int_equal(n_launched[0], 0);
        assert_int_equal(n_launched[1], 1);
        assert_int_equal(job[0].coordinator.node[1].ready[OPERATIONS], 0);
        offer(0, 0, TRACK_OPERATION, OPERATIONS);
        assert_one_order(1);
        assert_int_equal(job[0].coordinator.go[OPERATIONS], 0);
}

static void nodes_that_do_not_agree_say_nothing_of_it(void **state) {
        static const uint64_t none[LIMIT_LANES];
        struct message order;

        form(2);
        for (uint32_t at = 0; at < size; at++)
                job[0].node[at].config.agreed = false;
        open_everywhere(0, TRACK_STEP, 0, 2);
        offer(0, 0, TRACK_STEP, 0);
        assert_int_equal(n_launched[0], 1);
        assert_int_equal(reports + orders, 0);
        beat();
        assert_memory_equal(job[0].coordinator.node[0].ready, none, sizeof(none));
        assert_memory_equal(job[0].coordinator.node[0].go, none, sizeof(none));
        assert_int_equal(job[0].coordinator.node[0].seq[0], 1);
        assert_memory_equal(job[0].coordinator.go, none, sizeof(none));
        order = (struct message){ .kind = ORDER_RUN, .to = 1, .instance = 5 };
        order.term = job[0].node[1].term;
        order.round = job[0].node[1].round;
        order.stamp = now;
        order.generation = order.comm = job[0].node[1].generation;
        order.go[0] = 1;
        node_receive(&job[0].node[1], now, &order); /* nor do they listen to it */
        pull();
        assert_int_equal(n_launched[1], 0);
}

/* No node is ready for more than the window of each of them has room for. */
static void a_node_is_ready_within_its_window(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 5);
        for (unsigned i = 0; i < 5; i++)
                offer(0, 0, TRACK_STEP, 0);
        assert_int_equal(lane_of(0, 0, 0)->ready, WINDOW);
        assert_launched(0);
        for (unsigned i = 0; i < 5; i++)
                offer(0, 1, TRACK_STEP, 0);
        assert_one_order(WINDOW);
        end_on(0, 0, 0);
        assert_int_equal(lane_of(0, 0, 0)->ready, WINDOW + 1);
        assert_one_order(WINDOW);
        end_on(0, 1, 0);
        assert_one_order(WINDOW + 1);
        for (unsigned i = 0; i < 4; i++)
                end_everywhere(0, 0);
        assert_one_order(6);
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(launched[0][i].index, i);
        assert_int_equal(launched[0][5].kind, LAUNCH_VOTE);
}

static void a_vote_waits_for_all_results(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer_everywhere(0, TRACK_STEP, 0);
        forget();
        end_on(0, 0, 0);
        assert_launched(0);
        assert_int_equal(job[0].node[0].track[TRACK_STEP].prepared, 1);
        end_on(0, 1, 0);
        assert_one_order(1);
        assert_int_equal(launched[0][0].kind, LAUNCH_VOTE);
        end_everywhere(0, 0);
        land_everywhere(0, TRACK_STEP);
        for (uint32_t at = 0; at < size; at++)
                assert_int_equal(job[0].committed[at], 1);
}

/* A node says once what has become ready by one event; the coordinator once to each node what they may do. */
static void what_becomes_ready_together_is_said_once(void **state) {
        form(2);
        for (uint32_t track = TRACK_STEP + 2; track < TRACK_STEP + 4; track++) {
                open_everywhere(0, track, SHARED, 1);
                offer_everywhere(0, track, SHARED);
                fill_everywhere(0, track);
        }
        assert_one_order(1); /* the first one, which has its turn */
        forget();
        end_on(0, 0, SHARED); /* its vote, and the other one's payload after it */
        assert_int_equal(lane_of(0, 0, SHARED)->ready, 3);
        assert_int_equal(reports, 1);
        assert_int_equal(orders, 0);
        end_on(0, 1, SHARED);
        assert_int_equal(reports, 2);
        assert_int_equal(orders, size);
        assert_one_order(2);
        assert_int_equal(launched[0][0].kind, LAUNCH_VOTE);
        assert_int_equal(launched[0][1].kind, LAUNCH_PAYLOAD);
        assert_int_equal(launched[0][1].track, TRACK_STEP + 3);
}

/* Words that nobody hears are said again, and what is said again changes nothing. */
static void words_are_repeated(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 2);
        offer(0, 0, TRACK_STEP, 0);
        lost_to = ALL;
        offer(0, 1, TRACK_STEP, 0);
        assert_launched(0);
        assert_int_equal(job[0].coordinator.go[0], 1);
        lost_to = 2;
        beat();
        assert_int_equal(n_launched[0], 1);
        assert_int_equal(n_launched[1], 0);
        lost_to = 0;
        beat();
        beat();
        assert_one_order(1);
        offer(0, 0, TRACK_STEP, 0);
        node_offer(&job[0].node[1], now, job[0].node[1].generation, TRACK_STEP, 0);
        pull();
        n_letters = 0; /* lost, too */
        beat();
        assert_one_order(2);
}

/* A member is lost before nodes hear that they may launch: they do not, and need no fillers. */
static void nothing_new_is_launched_after_freeze(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer(0, 0, TRACK_STEP, 0);
        kept_from_to = ALL;
        offer(0, 1, TRACK_STEP, 0);
        assert_int_equal(job[0].coordinator.go[0], 1);
        kept_from_to = 0;
        node_lose(&job[0].node[1], now, member_id(1, 5, 1), WIRE__CAUSE__EXITED);
        pull();
        while (job[0].node[0].phase != NODE_FROZEN || job[0].node[1].phase != NODE_FROZEN)
                deliver_first();
        assert_int_equal(n_kept, 2);
        deliver_kept();
        pump();
        assert_launched(0);
        for (uint32_t at = 0; at < size; at++) {
                assert_int_equal(job[0].voided[at], 1);
                assert_int_equal(lane_of(0, at, 0)->ready, 0);
        }
        assert_int_equal(job[0].coordinator.cut[0], 0);
        assert_int_equal(job[0].node[0].filling, 0);
}

/* One node has launched, the other one has not heard that it may: a filler, for which nobody is asked. */
static void fillers_wait_for_nobody(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 2);
        offer(0, 0, TRACK_STEP, 0);
        lost_to = 2;
        offer(0, 1, TRACK_STEP, 0);
        assert_int_equal(n_launched[0], 1);
        assert_int_equal(n_launched[1], 0);
        lost_to = 0;
        node_lose(&job[0].node[1], now, member_id(1, 5, 1), WIRE__CAUSE__EXITED);
        pump();
        assert_int_equal(job[0].coordinator.cut[0], 1);
        assert_int_equal(n_launched[1], 1);
        assert_int_equal(launched[1][0].kind, LAUNCH_FILLER);
        now += 5000;
        end_everywhere(0, 0);
        assert_int_equal(job[0].voided[0], 1);
        assert_int_equal(job[0].voided[1], 1);
        for (uint32_t at = 0; at < size; at++)
                assert_int_equal(job[0].node[at].filling, 5000);
        assert_int_equal(lane_of(0, 0, 0)->launched, lane_of(0, 1, 0)->launched);
}

/* The next generation on the same communicator goes on where that was drained, whatever nodes might have
 * launched before. */
static void a_generation_begins_where_the_last_one_was_drained(void **state) {
        struct generation before;

        fillers_wait_for_nobody(state);
        before = job[0].node[0].comm;
        join(0, 1, 2);
        settle();
        assert_true(generation_equal(job[0].node[0].comm, before));
        assert_int_equal(job[0].node[0].generation.number, 2);
        assert_int_equal(job[0].coordinator.go[0], 1);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer(0, 0, TRACK_STEP, 0);
        assert_launched(0);
        offer(0, 1, TRACK_STEP, 0);
        assert_one_order(1);
        assert_int_equal(launched[0][0].seq, 2);
}

/* What was let go and not launched in one generation is not launched in the next one. */
static void what_was_not_launched_is_not_launched_later(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 2);
        for (unsigned i = 0; i < 2; i++)
                offer(0, 0, TRACK_STEP, 0);
        kept_from_to = ALL;
        for (unsigned i = 0; i < 2; i++)
                offer(0, 1, TRACK_STEP, 0);
        assert_int_equal(job[0].coordinator.go[0], 2);
        kept_from_to = 0;
        node_lose(&job[0].node[1], now, member_id(1, 5, 1), WIRE__CAUSE__EXITED);
        pump();
        join(0, 1, 2);
        settle();
        assert_int_equal(job[0].coordinator.go[0], 0);
        open_everywhere(0, TRACK_STEP, 0, 2);
        offer(0, 0, TRACK_STEP, 0);
        assert_true(n_kept > 0);
        deliver_kept();
        pump();
        assert_launched(0);
        offer(0, 1, TRACK_STEP, 0);
        assert_one_order(1);
}

/* A node joins: the communicator is another one, and all counts begin anew. */
static void a_new_communicator_begins_from_nothing(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer_everywhere(0, TRACK_STEP, 0);
        end_everywhere(0, 0);
        end_everywhere(0, 0);
        land_everywhere(0, TRACK_STEP);
        assert_int_equal(job[0].coordinator.go[0], 2);
        size = 3;
        for (uint32_t of = 0; of < JOBS; of++) {
                start_node(of, 2);
                join(of, 2, 1);
        }
        settle();
        assert_int_equal(job[0].coordinator.tally.survivors, 3);
        assert_int_equal(job[0].coordinator.go[0], 0);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer(0, 1, TRACK_STEP, 0);
        offer(0, 2, TRACK_STEP, 0);
        assert_launched(0);
        offer(0, 0, TRACK_STEP, 0);
        assert_one_order(1);
        assert_int_equal(launched[2][0].seq, 1);
}

/* A coordinator that takes over says first what one of the nodes has heard, then what is new. */
static void a_takeover_takes_nothing_back(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        open_everywhere(0, TRACK_STEP + 1, 1, 1);
        offer(0, 0, TRACK_STEP + 1, 1);
        lost_to = 2;
        offer(0, 1, TRACK_STEP + 1, 1); /* node 0 launches it, node 1 does not hear of it */
        assert_int_equal(n_launched[0], 1);
        assert_int_equal(n_launched[1], 0);
        lost_to = 0;
        for (uint32_t at = 0; at < size; at++)
                node_offer(&job[0].node[at], now, job[0].node[at].generation, TRACK_STEP, 0);
        pull();
        n_letters = 0; /* which the former coordinator does not hear */
        start_coordinator(0);
        beat();
        assert_int_equal(job[0].coordinator.stage, STAGE_RUNNING);
        assert_true(job[0].node[0].term > job[1].node[0].term);
        assert_one_order(2);
        assert_int_equal(launched[1][0].lane, 1);
        assert_int_equal(launched[1][1].lane, 0);
        assert_int_equal(job[0].coordinator.go[0], 1);
        assert_int_equal(job[0].coordinator.go[1], 1);
        assert_int_equal(job[0].voided[0] + job[0].voided[1], 0);
}

/* A node that was stopped hears the words after each other, and may launch nothing before the coordinator has
 * heard of it: then it launches in their order. */
static void a_suspended_node_keeps_the_order(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        open_everywhere(0, TRACK_STEP + 1, 1, 1);
        offer(0, 1, TRACK_STEP + 1, 1);
        offer(0, 1, TRACK_STEP, 0);
        kept_from_to = 2;
        offer(0, 0, TRACK_STEP + 1, 1);
        offer(0, 0, TRACK_STEP, 0);
        assert_int_equal(n_launched[0], 2);
        now += times.patience + times.heartbeat;
        deliver_kept();
        assert_true(job[0].node[1].suspended);
        assert_int_equal(n_launched[1], 0);
        beat();
        beat();
        assert_false(job[0].node[1].suspended);
        assert_one_order(2);
        assert_int_equal(launched[1][0].lane, 1);
}

/* Nothing has been heard for so long that the node leaves its generation: others are not to count on it. */
static void a_node_that_leaves_is_ready_for_nothing(void **state) {
        form(2);
        open_everywhere(0, TRACK_STEP, 0, 1);
        offer(0, 0, TRACK_STEP, 0);
        assert_int_equal(lane_of(0, 0, 0)->ready, 1);
        now += times.abandon + times.heartbeat;
        node_tick(&job[0].node[0], now);
        assert_int_equal(job[0].node[0].phase, NODE_LEAVING);
        pull();
        for (unsigned i = 0; i < n_letters; i++)
                assert_int_equal(letter[i].message.ready[0], 0);
        assert_true(n_letters > 0);
}

/* What no coordinator says does no harm. */
static void a_node_launches_only_what_it_has(void **state) {
        struct message order = { .kind = ORDER_RUN, .to = 1, .instance = 5 };
        struct node *node;

        form(2);
        node = &job[0].node[1];
        open_everywhere(0, TRACK_STEP, 0, 2);
        offer(0, 1, TRACK_STEP, 0);
        order.term = node->term;
        order.round = node->round;
        order.stamp = now;
        order.generation = order.comm = node->generation;
        for (uint32_t lane = 0; lane < LIMIT_LANES; lane++)
                order.go[lane] = LIMIT_NUMBER;
        order.generation.number++; /* of another generation */
        node_receive(node, now, &order);
        pull();
        assert_int_equal(n_launched[1], 0);
        order.generation.number--;
        node_receive(node, now, &order);
        pull();
        assert_int_equal(n_launched[1], 1);
        assert_int_equal(node->lane[0].go, 1);
        assert_int_equal(node->lane[OPERATIONS].go, 0);
        offer(0, 1, TRACK_STEP, 0);
        assert_int_equal(n_launched[1], 1);
}

static int give_back(void **state) {
        for (uint32_t of = 0; of < JOBS; of++) {
                free(job[of].coordinator_memory);
                for (uint32_t at = 0; at < NODES; at++)
                        free(job[of].node_memory[at]);
        }
        effects_deinit(&effects);
        return 0;
}

static int make_effects(void **state) {
        return effects_init(&effects, EFFECTS_ROOM);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nothing_is_launched_before_all_are_ready),
                cmocka_unit_test(lanes_are_launched_in_one_order),
                cmocka_unit_test(one_word_for_several_lanes),
                cmocka_unit_test(jobs_are_launched_in_one_order),
                cmocka_unit_test(operations_are_not_agreed_on),
                cmocka_unit_test(nodes_that_do_not_agree_say_nothing_of_it),
                cmocka_unit_test(a_node_is_ready_within_its_window),
                cmocka_unit_test(a_vote_waits_for_all_results),
                cmocka_unit_test(what_becomes_ready_together_is_said_once),
                cmocka_unit_test(words_are_repeated),
                cmocka_unit_test(nothing_new_is_launched_after_freeze),
                cmocka_unit_test(fillers_wait_for_nobody),
                cmocka_unit_test(a_generation_begins_where_the_last_one_was_drained),
                cmocka_unit_test(what_was_not_launched_is_not_launched_later),
                cmocka_unit_test(a_new_communicator_begins_from_nothing),
                cmocka_unit_test(a_takeover_takes_nothing_back),
                cmocka_unit_test(a_suspended_node_keeps_the_order),
                cmocka_unit_test(a_node_that_leaves_is_ready_for_nothing),
                cmocka_unit_test(a_node_launches_only_what_it_has),
        };

        return cmocka_run_group_tests(tests, make_effects, give_back);
}
