/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes and coordinators among noise, and random lives of a job on one node, which come to an end. Single
 * cases are in scripts. */
#include "rig/machines.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "tests/unit/recount.h"

#define NODES MACHINES_NODES
#define SECOND 1000000u

#define ROOM                                                                                                 \
        { .members = LIMIT_SEATS, .tracks = LIMIT_TRACKS, .nodes = NODES }

static const struct room room = ROOM;
static const struct node_config of_node = { .candidates = 1,
                                            .instance = MACHINES_INSTANCE,
                                            .n_lanes = 2,
                                            .window = 2,
                                            .incarnation = 1,
                                            .room = ROOM };
static const struct membership_request wish = {
        .min_world = 1, .max_world = 3, .adapts = true, .grace = SECOND, .last_call = SECOND, .incarnation = 1
};

static struct membership_request member(uint32_t of, uint64_t count) {
        struct membership_request request = wish;

        request.max_world = 4;
        request.member = count > 0 ? member_id(of, 0, count) : 0;
        return request;
}

/* What machines say and do is looked at by nobody. */
static void forget(void) {
        machines_pull();
        w.n_letters = 0;
}

static uint32_t seed = 1;

static uint32_t noise(void) {
        seed = seed * 1664525u + 1013904223u;
        return seed >> 8;
}

static struct message noisy(uint32_t to) {
        struct message m;

        memset(&m, 0, offsetof(struct message, mark));
        m = (struct message){ .kind = noise() % (N_MESSAGE_KINDS + 1),
                              .from = noise() % 5,
                              .to = to,
                              .instance = noise() % 7,
                              .term = 256 * (noise() % 4),
                              .round = noise() % 12,
                              .stamp = MACHINES_NOW + noise() % 9,
                              .generation = { 256, noise() % 4, 7 },
                              .comm = { 256, noise() % 4, 7 },
                              .n_words = 1,
                              .set = { noise() % 32 },
                              .links = { noise() % 8 },
                              .world = noise() % 5,
                              .source = noise() % 5,
                              .end = noise() % (N_JOB_ENDS + 1),
                              .member = member_id(to, 0, noise() % 5),
                              .running = noise() % 2,
                              .n_members = noise() % 4,
                              .n_tracks = noise() % 5 };
        for (unsigned i = 0; i < LIMIT_LANES; i++)
                m.seq[i] = noise() % 6;
        for (unsigned i = 0; i < m.n_tracks; i++) {
                m.mark[i] = noise() % 4;
                m.committed[i] = noise() % 4;
                m.prepared[i] = m.committed[i] + noise() % 3;
        }
        for (unsigned i = 0; i < m.n_members; i++)
                m.member_of[i] = (struct message_member){ .request = member(noise() % 8 == 0 ? noise() % 5
                                                                            : m.kind >= ANSWER_REPORT ? m.from
                                                                                                      : to,
                                                                            noise() % 6),
                                                          .rank = noise() % 4,
                                                          .in = noise() % 2,
                                                          .leaving = noise() % 5 == 0 };
        return m;
}

/* Whatever comes: numbers never go back, and nothing is prepared beyond what is open. */
static void noise_breaks_no_node(void **state) {
        for (unsigned run = 0; run < 300; run++) {
                uint64_t term = 0;

                struct node *node;

                machines_reach(NODE_RUNNING + run % (NODE_SETTLED - NODE_RUNNING + 1), of_node, &wish);
                node = machines_node(0, MACHINES_LONE);
                for (unsigned i = 0; i < 60; i++) {
                        struct message m = noisy(1);

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

static void noise_breaks_no_coordinator(void **state) {
        for (unsigned run = 0; run < 300; run++) {
                const struct coordinator *c = &w.job[0].coordinator;
                uint64_t term = 0;

                machines_begin(1, NODES, &machines_usual);
                machines_start_coordinator(0, (struct coordinator_config){ .candidates = 1 + run % 2 * 2,
                                                                           .nonce = run,
                                                                           .alone = run % 3 == 0,
                                                                           .room = room });
                for (unsigned i = 0; i < 200; i++) {
                        struct message m = noisy(0);

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

/* ---- lives ---- */

static struct node *const node = &w.job[0].at[0].node;
static struct coordinator *const coordinator = &w.job[0].coordinator;
static const uint64_t planned[LIMIT_LANES] = { 1 };

static uint32_t below(uint32_t n) {
        return noise() % n;
}

static void join(uint64_t count) {
        struct membership_request request = wish;

        request.member = count;
        node_join(node, w.now, &request, &(struct tag){ 0 });
        machines_pump();
}

static void form_two(void) {
        struct coordinator_config config = { .candidates = 1, .nonce = 7, .incarnation = 1, .alone = true };

        machines_begin(1, 1, &machines_never);
        config.room = room;
        config.room.nodes = 1;
        machines_start_coordinator(0, config);
        machines_start_node(0, 0, of_node);
        w.quiets = true;
        join(1);
        join(2);
        w.now = membership_deadline(&coordinator->membership);
        coordinator_tick(coordinator, w.now);
        machines_pump();
        assert_int_equal(node->phase, NODE_RUNNING);
}

/* What the caller would do next with that unit; false: nothing. */
static bool carry_on(uint32_t track) {
        switch (node->track[track].state) {
        case UNIT_OPEN:
                if (node->phase != NODE_RUNNING || node->missing || node->track[track].spoilt)
                        return false;
                node_full(node, w.now, node->generation, track);
                break;
        case UNIT_COMMITTING: node_landed(node, w.now, node->generation, track); break;
        case UNIT_VOIDING: node_quiet(node, w.now, node->generation, track); break;
        default: return false;
        }
        machines_pump();
        return true;
}

static void move(uint64_t *next) {
        uint32_t track = below(3), some = node->n > 0 ? below(node->n) : 0;

        switch (below(14)) {
        case 0: join(++*next); break;
        case 1:
                if (node->n > 1)
                        node_lose(node, w.now, node->member[some].request.member, WIRE__CAUSE__EXITED);
                break;
        case 2:
                if (node->n > 1) {
                        node_leave(node, w.now, node->member[some].request.member);
                        machines_pump();
                }
                break;
        case 3:
                if (node->n < 2 || !node->member[some].in || node->track[track].state == UNIT_IDLE)
                        break; /* who takes memory away has given some */
                node_spoil(node, w.now, node->generation, track);
                node_lose(node, w.now, node->member[some].request.member, WIRE__CAUSE__EVICTED);
                break;
        case 4:
                node_differ(node, w.now, node->generation, TRACK_OPERATION);
                machines_pump();
                break;
        case 5:
                node_wait(node, w.now, !node->wait);
                machines_pump();
                break;
        case 6:
                w.now += below(SECOND);
                coordinator_tick(coordinator, w.now);
                machines_pump();
                break;
        default:
                if (!carry_on(track) && node_open(node, w.now, node->generation, track, planned))
                        machines_pump();
        }
        machines_pump();
        forget();
}

/* Everything that was begun comes to an end, and waits only for the time of the membership. */
static void whatever_happens_comes_to_an_end(void **state) {
        unsigned ended = 0;

        for (unsigned run = 0; run < 2000; run++) {
                uint64_t next = 2;
                bool going = true;

                form_two();
                for (unsigned i = below(60); i > 0; i--)
                        move(&next);
                node_wait(node, w.now, false);
                machines_pump();
                for (unsigned i = 0; going; i++) {
                        assert_true(i < 100);
                        w.now += SECOND;
                        coordinator_tick(coordinator, w.now);
                        machines_pump();
                        going = carry_on(0) || carry_on(1) || carry_on(2);
                        forget();
                }
                w.now += SECOND;
                coordinator_tick(coordinator, w.now);
                machines_pump();
                if (coordinator_order(coordinator) ==
                    ORDER_END) { /* nobody is left who was there before, or has the state */
                        assert_true(coordinator->end == JOB_END_TOO_FEW ||
                                    coordinator->end == JOB_END_NO_STATE);
                        assert_int_equal(node->phase, NODE_ENDED);
                        ended++;
                        continue;
                }
                assert_int_equal(node->phase, NODE_RUNNING);
                assert_int_equal(coordinator_order(coordinator), ORDER_RUN);
                assert_int_equal(coordinator->membership.n, node->n);
                assert_int_equal(coordinator->membership.n_waiting, 0);
        }
        assert_in_range(ended, 1, 1000);
}

static int end(void **state) {
        machines_end();
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(noise_breaks_no_node, end),
                cmocka_unit_test_teardown(noise_breaks_no_coordinator, end),
                cmocka_unit_test_teardown(whatever_happens_comes_to_an_end, end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
