/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and coordinators among noise. Single cases are in scripts, random lives in tests/simulation. */
#include "rig/machines.h"
#include "tests.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "tests/unit/recount.h"

#define NODES MACHINES_NODES
#define SECOND 1000000u

#define ROOM                                                                                                 \
        { .members = LIMIT_SEATS, .tracks = LIMIT_TRACKS, .nodes = NODES }

static const struct room room = ROOM;
static const struct node_config of_node = {
        .instance = MACHINES_INSTANCE, .n_lanes = 2, .window = 2, .incarnation = 1, .room = ROOM
};
static const struct membership_request wish = {
        .min_world = 1, .max_world = 3, .grace = SECOND, .last_call = SECOND, .incarnation = 1
};

static struct membership_request member(uint32_t of, uint64_t count) {
        struct membership_request request = wish;

        request.max_world = 4;
        request.member = count > 0 ? member_id(of, 0, count) : 0;
        return request;
}

/* Does the actions of the machines, and drops their messages. */
static void forget(void) {
        machines_pull();
        w.n_letters = 0;
}

static uint32_t seed = 1;

static uint32_t noise(void) {
        seed = seed * 1664525u + 1013904223u;
        return seed >> 8;
}

static struct order noisy_order(void) {
        struct order order = { .kind = noise() % (N_ORDERS + 1),
                               .to = MACHINES_LONE,
                               .instance = noise() % 7,
                               .term = noise() % 4,
                               .round = noise() % 12,
                               .stamp = MACHINES_NOW + noise() % 9,
                               .generation = { 2, noise() % 4, 7 },
                               .comm = { 2, noise() % 4, 7 },
                               .n_words = 1,
                               .set = { noise() % 32 },
                               .world = noise() % 5,
                               .source = noise() % 5,
                               .end = noise() % (N_JOB_ENDS + 1),
                               .member = member_id(MACHINES_LONE, 0, noise() % 5),
                               .n_tracks = noise() % 5 };

        order.n_members = order.kind == ORDER_NEWGEN ? noise() % 4 : 0;
        for (unsigned i = 0; i < LIMIT_LANES; i++)
                order.seq[i] = noise() % 6;
        for (unsigned i = 0; i < order.n_tracks; i++)
                order.mark[i] = noise() % 4;
        for (unsigned i = 0; i < order.n_members; i++)
                order.member_of[i] = (struct order_member){
                        .member = member(noise() % 8 == 0 ? noise() % 5 : MACHINES_LONE, noise() % 6).member,
                        .rank = noise() % 4,
                        .behind = noise() % 2
                };
        return order;
}

static struct report noisy_report(void) {
        struct report report = { .kind = noise() % (N_ANSWERS + 1),
                                 .from = noise() % 5,
                                 .instance = noise() % 7,
                                 .term = noise() % 4,
                                 .round = noise() % 12,
                                 .stamp = MACHINES_NOW + noise() % 9,
                                 .generation = { 2, noise() % 4, 7 },
                                 .comm = { 2, noise() % 4, 7 },
                                 .n_words = 1,
                                 .set = { noise() % 32 },
                                 .links = { noise() % 8 },
                                 .world = noise() % 5,
                                 .end = noise() % (N_JOB_ENDS + 1),
                                 .running = noise() % 2,
                                 .n_members = noise() % 4,
                                 .n_tracks = noise() % 5 };

        for (unsigned i = 0; i < LIMIT_LANES; i++)
                report.seq[i] = noise() % 6;
        for (unsigned i = 0; i < report.n_tracks; i++) {
                report.mark[i] = noise() % 4;
                report.committed[i] = noise() % 4;
                report.prepared[i] = report.committed[i] + noise() % 3;
        }
        for (unsigned i = 0; i < report.n_members; i++)
                report.member_of[i] = (struct report_member){
                        .request = member(noise() % 8 == 0 ? noise() % 5 : report.from, noise() % 6),
                        .rank = noise() % 4,
                        .in = noise() % 2,
                        .leaving = noise() % 5 == 0
                };
        return report;
}

static int end(void **state) {
        machines_end();
        return 0;
}

#define TEST(name) TEST_WITH(name, NULL, end)

/* Under random orders terms never go back, and a node prepares nothing beyond the open unit. */
TEST(noise_breaks_no_node) {
        for (unsigned run = 0; run < 300; run++) {
                uint64_t term = 0;
                struct node *node;

                machines_reach(NODE_RUNNING + run % (NODE_SETTLED - NODE_RUNNING + 1), of_node, &wish);
                node = machines_node(0, MACHINES_LONE);
                for (unsigned i = 0; i < 60; i++) {
                        struct order m = noisy_order();

                        node_receive(node, w.now, &m);
                        assert_true(node->term >= term && node->n <= LIMIT_LOCAL);
                        term = node->term;
                        for (uint32_t track = 0; track < node->n_tracks; track++)
                                assert_true(node->track[track].prepared >= node->track[track].committed &&
                                            node->track[track].prepared <= node->track[track].committed + 1);
                        forget();
                }
        }
}

/* The state of a daemon was lost twice, and a node was in a later term than either run can know. */
TEST(the_terms_of_two_runs_are_apart) {
        const struct coordinator *c = &w.job[0].coordinator;
        uint64_t term[2];

        machines_begin(1, NODES, &machines_usual);
        for (unsigned run = 0; run < 2; run++) {
                struct report report = { .kind = ANSWER_REPORT,
                                         .from = 1,
                                         .instance = MACHINES_INSTANCE,
                                         .term = 1000,
                                         .stamp = 1,
                                         .n_tracks = TRACK_STEP + 1 };

                machines_start_coordinator(0, (struct coordinator_config){ .room = room });
                assert_int_equal(c->term, w.floor + 1);
                machines_hear(0, &report);
                assert_true(c->term > report.term);
                term[run] = c->term;
                forget();
        }
        assert_true(term[0] != term[1]);
}

/* Terms would come to their end soon, and honest nodes could not report the last ones. */
TEST(a_term_that_nobody_can_have_had_is_not_followed) {
        static const uint64_t lies[] = { UINT64_C(1) << 49, LIMIT_NUMBER / 2, LIMIT_NUMBER };
        const struct coordinator *c = &w.job[0].coordinator;
        struct report report = { .kind = ANSWER_REPORT,
                                 .from = 1,
                                 .instance = MACHINES_INSTANCE,
                                 .stamp = 1,
                                 .n_tracks = TRACK_STEP + 1 };

        machines_begin(1, NODES, &machines_usual);
        machines_start_coordinator(0, (struct coordinator_config){ .room = room });
        uint64_t term = c->term;
        for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
                report.term = lies[i];
                machines_hear(0, &report);
                assert_int_equal(c->term, term);
                assert_false(c->node[1].known);
        }
        report.term = term;
        machines_hear(0, &report);
        assert_true(c->node[1].known);
        forget();
}

TEST(noise_breaks_no_coordinator) {
        for (unsigned run = 0; run < 300; run++) {
                const struct coordinator *c = &w.job[0].coordinator;
                uint64_t term = 0;

                machines_begin(1, NODES, &machines_usual);
                machines_start_coordinator(0, (struct coordinator_config){
                                                      .nonce = run, .alone = run % 3 == 0, .room = room });
                for (unsigned i = 0; i < 200; i++) {
                        struct report m = noisy_report();

                        w.now += noise() % 20000;
                        machines_hear(0, &m);
                        coordinator_tick(&w.job[0].coordinator, w.now);
                        assert_true(counts_agree(c));
                        assert_true(c->term >= term && membership_all(&c->membership) <= LIMIT_SEATS);
                        assert_true(c->membership.n + c->membership.n_waiting <= LIMIT_LOCAL);
                        assert_true(nodeset_within(c->lost, c->set));
                        term = c->term;
                        forget();
                }
        }
}
