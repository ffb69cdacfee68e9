/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders and reports as bytes: whatever is valid comes back as it was, whatever is not is refused, and
 * no bytes do harm.
 */
#include "tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peer.pb-c.h"
#include "peer_fixture.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/post.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static uint8_t bytes[PEER_MAX], again[PEER_MAX];
static struct order order, heard_order;
static struct report report, heard_report;
static const char *why;
/* ---- comparing them ---- */

/* What lies between fields is not compared: structs are copied field by field into zeros. */
struct field {
        size_t at, size;
};

#define FIELD(of, name)                                                                                      \
        { offsetof(struct of, name), sizeof(((struct of *)NULL)->name) }
#define T(name) FIELD(tag, name)
static const struct field tag_fields[] = { T(incarnation), T(term),       T(generation),
                                           T(step),        T(checkpoint), T(plans) };
#define L(name) FIELD(membership_loss, name)
static const struct field membership_loss_fields[] = { L(member), L(rank), L(pid), L(cause) };
#define R(name) FIELD(membership_request, name)
static const struct field membership_request_fields[] = {
        R(member), R(pid),    R(min_world), R(max_world),   R(has_rank), R(has_slot),  R(rank),
        R(slot),   R(spare),  R(returns),   R(incarnation), R(timeout),  R(last_call), R(grace),
        R(host),   R(device), R(identity),  R(instance),    R(node)
};
#define M(name) FIELD(report_member, name)
static const struct field report_member_fields[] = { M(request), M(tag),    M(rank),    M(slot), M(id),
                                                     M(in),      M(behind), M(leaving), M(waits) };
#define O(name) FIELD(order_member, name)
static const struct field order_member_fields[] = { O(member), O(tag), O(rank), O(slot), O(id), O(behind) };
#define P(name) FIELD(report_plan, name)
static const struct field report_plan_fields[] = { P(digest),  P(unit),  P(turn), P(before),
                                                   P(ordinal), P(track), P(open), P(voids) };
#define Q(name) FIELD(order_plan, name)
static const struct field order_plan_fields[] = { Q(digest),  Q(unit),  Q(turn), Q(before),
                                                  Q(ordinal), Q(track), Q(open), Q(kept) };
#define G(name) FIELD(report_gone, name)
static const struct field report_gone_fields[] = { G(member), G(cause) };
#define F(name) FIELD(plan_facts, name)
static const struct field plan_facts_fields[] = { F(prefix), F(index),  F(n_params), F(n_buckets), F(reduce),
                                                  F(voids),  F(placed), F(name),     F(dtype),     F(dims),
                                                  F(bucket), F(shape),  F(bytes),    F(rank),      F(pid) };

static void tidy(void *what, size_t size, const struct field *field, unsigned n) {
        unsigned char neat[sizeof(struct plan_facts) + sizeof(struct report_member)] = { 0 };

        for (unsigned i = 0; i < n; i++)
                memcpy(neat + field[i].at, (unsigned char *)what + field[i].at, field[i].size);
        memcpy(what, neat, size);
}

#define TIDY(what, of)                                                                                       \
        tidy(what, sizeof(struct of), of##_fields, sizeof(of##_fields) / sizeof(of##_fields[0]))

static void order_tidy(struct order *m) {
        TIDY(&m->history, tag);
        TIDY(&m->loss, membership_loss);
        for (uint32_t i = 0; i < m->n_members; i++) {
                TIDY(&m->member_of[i].tag, tag);
                TIDY(&m->member_of[i], order_member);
        }
        for (uint32_t i = 0; i < m->n_plans; i++)
                TIDY(&m->plan[i], order_plan);
}

static void report_tidy(struct report *m) {
        TIDY(&m->about.facts, plan_facts);
        TIDY(&m->history, tag);
        for (uint32_t i = 0; i < m->n_members; i++) {
                TIDY(&m->member_of[i].tag, tag);
                TIDY(&m->member_of[i].request, membership_request);
                TIDY(&m->member_of[i], report_member);
        }
        for (uint32_t i = 0; i < m->n_plans; i++)
                TIDY(&m->plan[i], report_plan);
        for (uint32_t i = 0; i < m->n_gone; i++)
                TIDY(&m->gone[i], report_gone);
}

static uint32_t words_of(struct nodeset set, struct nodeset links) {
        uint32_t n = nodeset_length(set), m = nodeset_length(links);

        return n > m ? n : m;
}

/* Words of nodes at the end that name none are not compared. */
static void assert_same_order(struct order *a, struct order *b) {
        assert_int_equal(words_of(order_set(a), order_links(a)), b->n_words);
        assert_true(b->n_words <= a->n_words);
        b->n_words = a->n_words;
        order_tidy(a);
        order_tidy(b);
        assert_memory_equal(a, b, sizeof(*a));
}

static void assert_same_report(struct report *a, struct report *b) {
        assert_int_equal(words_of(report_set(a), report_links(a)), b->n_words);
        assert_true(b->n_words <= a->n_words);
        b->n_words = a->n_words;
        report_tidy(a);
        report_tidy(b);
        assert_memory_equal(a, b, sizeof(*a));
}

/* ---- there and back ---- */

#define ROUNDS 100u

TEST_ALONE(each_order_comes_back_as_it_was) {
        for (unsigned i = 0; i < ROUNDS * N_ORDERS; i++) {
                make_order(&order, i % N_ORDERS);
                ssize_t n = peer_encode_order(&scratch, &order, bytes);

                assert_true(n > 0);
                memset(&heard_order, 0, sizeof(heard_order));
                assert_true(peer_decode_order(&scratch, bytes, (size_t)n, &heard_order, &why));
                assert_null(why);
                assert_int_equal(peer_encode_order(&scratch, &heard_order, again), n);
                assert_memory_equal(bytes, again, (size_t)n);
                assert_same_order(&order, &heard_order);
        }
}

TEST_ALONE(each_report_comes_back_as_it_was) {
        for (unsigned i = 0; i < ROUNDS * N_ANSWERS; i++) {
                make_report(&report, ANSWER_REPORT + i % (N_ANSWERS - ANSWER_REPORT));
                ssize_t n = peer_encode_report(&scratch, &report, bytes);

                assert_true(n > 0);
                memset(&heard_report, 0, sizeof(heard_report));
                assert_true(peer_decode_report(&scratch, bytes, (size_t)n, &heard_report, &why));
                assert_null(why);
                assert_int_equal(peer_encode_report(&scratch, &heard_report, again), n);
                assert_memory_equal(bytes, again, (size_t)n);
                assert_same_report(&report, &heard_report);
        }
}

/* In no more room than it needs: the bytes behind the end of it are not its own. */
TEST_ALONE(a_copy_says_the_same_in_as_many_bytes_as_it_needs) {
        for (unsigned i = 0; i < ROUNDS * N_ORDERS; i++) {
                make_order(&order, i % N_ORDERS);
                ssize_t n = peer_encode_order(&scratch, &order, bytes);
                struct order *copy = test_malloc(order_bytes(&order));

                memset(copy, 0xa5, order_bytes(&order));
                order_copy(copy, &order);
                assert_int_equal(peer_encode_order(&scratch, copy, again), n);
                assert_memory_equal(bytes, again, (size_t)n);
                test_free(copy);
        }
        for (unsigned i = 0; i < ROUNDS * N_ANSWERS; i++) {
                make_report(&report, ANSWER_REPORT + i % (N_ANSWERS - ANSWER_REPORT));
                ssize_t n = peer_encode_report(&scratch, &report, bytes);
                struct report *copy = test_malloc(report_bytes(&report));

                memset(copy, 0xa5, report_bytes(&report));
                report_copy(copy, &report);
                assert_int_equal(peer_encode_report(&scratch, copy, again), n);
                assert_memory_equal(bytes, again, (size_t)n);
                test_free(copy);
        }
}

/* Every number as large as it can be. */
TEST_ALONE(the_largest_report_fits) {
        make_report(&report, ANSWER_REPORT);
        report.from = LIMIT_NODES - 1;
        report.term = report.round = report.stamp = LIMIT_NUMBER;
        report.n_members = LIMIT_SEATS;
        report.n_gone = LIMIT_LOCAL;
        report.n_tracks = LIMIT_TRACKS;
        report.n_plans = LIMIT_PLANS;
        for (uint32_t i = 0; i < LIMIT_PLANS; i++)
                report.plan[i] = (struct report_plan){ .digest = UINT64_MAX,
                                                       .unit = LIMIT_NUMBER,
                                                       .turn = LIMIT_NUMBER - i,
                                                       .ordinal = UINT32_MAX,
                                                       .track = TRACK_STEP + i,
                                                       .open = true,
                                                       .before = LIMIT_NUMBER };
        report.n_words = NODESET_WORDS;
        memset(report.set, 0xff, sizeof(report.set));
        memset(report.links, 0xff, sizeof(report.links));
        memset(report.gone, 0xff, sizeof(report.gone));
        for (uint32_t i = 0; i < LIMIT_TRACKS; i++) {
                report.mark[i] = LIMIT_NUMBER;
                report.committed[i] = LIMIT_NUMBER - 1;
                report.prepared[i] = LIMIT_NUMBER;
        }
        report.world = LIMIT_WORLD;
        report.generation = report.comm = (struct generation){ LIMIT_NUMBER, LIMIT_GENERATION, UINT32_MAX };
        for (uint32_t i = 0; i < LIMIT_SEATS; i++) {
                struct report_member *member = &report.member_of[i];

                memset(&member->tag, 0xff, sizeof(member->tag));
                member->tag.checkpoint = true;
                member->tag.step = LIMIT_NUMBER;
                member->request = (struct membership_request){
                        UINT64_MAX,    INT32_MIN,       LIMIT_WORLD,     LIMIT_WORLD,  true,
                        true,          LIMIT_WORLD - 1, LIMIT_WORLD - 1, true,         true,
                        UINT64_MAX,    LIMIT_NUMBER,    LIMIT_NUMBER,    LIMIT_NUMBER, report.host,
                        report.device, UINT64_MAX,      UINT64_MAX,      report.from
                };
                member->rank = member->slot = LIMIT_WORLD - 1;
                member->id = UINT64_MAX;
                member->in = member->behind = member->leaving = true;
        }
        report.note = NOTE_FAILED;
        report.ordinal = UINT32_MAX;
        report.about.refusal = (struct refusal){
                .code = UINT32_MAX, .has_culprit = true, .rank = UINT32_MAX, .pid = INT32_MIN
        };
        memset(report.about.refusal.text, 't', sizeof(report.about.refusal.text) - 1);
        memset(report.about.refusal.parameter, 'p', LIMIT_NAME);
        ssize_t n = peer_encode_report(&scratch, &report, bytes);
        assert_in_range(n, 1, PEER_MAX - 1);
        assert_true(peer_decode_report(&scratch, bytes, (size_t)n, &heard_report, &why));
        assert_int_equal(heard_report.n_members, LIMIT_SEATS);
}

/* To form a job with few members on each of many nodes, and to change it. */
TEST_ALONE(an_ordinary_message_is_small) {
        for (unsigned kind = 0; kind < ORDER_REFUSE; kind++) {
                make_order(&order, kind);
                order.n_tracks = 3;
                order.n_plans %= 9;
                memset(order.mark, 0, sizeof(order.mark));
                for (uint32_t i = 0; i < order.n_plans; i++)
                        order.plan[i].unit = order.plan[i].turn = 0;
                order.n_words = NODESET_WORDS;
                memset(order.set, 0xff, sizeof(order.set));
                memset(order.links, 0, sizeof(order.links));
                order.n_members = kind == ORDER_NEWGEN ? 8 : 0;
                order_fill_members(&order);
                assert_in_range(peer_encode_order(&scratch, &order, bytes), 1, 2048 + order.n_members * 96);
                order.n_members = 0;
                assert_in_range(peer_encode_order(&scratch, &order, bytes), 1, 2048);
        }
        for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++) {
                make_report(&report, kind);
                report.note = NOTE_NONE;
                report.n_members = report.n_gone = 8;
                report.n_tracks = 3;
                report.n_plans %= 9;
                memset(report.mark, 0, sizeof(report.mark));
                memset(report.committed, 0, sizeof(report.committed));
                memset(report.prepared, 0, sizeof(report.prepared));
                for (uint32_t i = 0; i < report.n_plans; i++)
                        report.plan[i].unit = report.plan[i].turn = 0;
                report_fill_members(&report);
                for (uint32_t i = 0; i < report.n_gone; i++)
                        report.gone[i] = (struct report_gone){ member_for(report.from), 2 };
                report.n_words = NODESET_WORDS;
                memset(report.set, 0xff, sizeof(report.set));
                memset(report.links, 0, sizeof(report.links));
                assert_in_range(peer_encode_report(&scratch, &report, bytes), 1, 4096);
        }
}

/* ---- damage ---- */

/* Refused, or a valid message, which is all that a machine asks for. */
static void hear_order(const uint8_t *what, size_t n) {
        if (peer_decode_order(&scratch, what, n, &heard_order, &why))
                assert_true(order_valid(&heard_order));
        else
                assert_non_null(why);
}

static void hear_report(const uint8_t *what, size_t n) {
        if (peer_decode_report(&scratch, what, n, &heard_report, &why))
                assert_true(report_valid(&heard_report));
        else
                assert_non_null(why);
}

/* Whatever is cut off or turned over, by the receiver of the other kind, too. */
static void damage(size_t n) {
        for (size_t length = 0; length < n; length++) {
                uint8_t *part = malloc(length + 1); /* a sanitizer sees a read beyond it */

                assert_non_null(part);
                memcpy(part, bytes, length);
                hear_order(part, length);
                hear_report(part, length);
                free(part);
        }
        for (size_t bit = 0; bit < n * 8; bit += 1 + below(7)) {
                bytes[bit / 8] ^= 1u << bit % 8;
                hear_order(bytes, n);
                hear_report(bytes, n);
                bytes[bit / 8] ^= 1u << bit % 8;
        }
}

static uint32_t at_most(uint32_t n, uint32_t most) {
        return n < most ? n : most;
}

TEST_ALONE(damage_does_no_harm) {
        for (unsigned i = 0; i < 4 * N_ORDERS; i++) {
                make_order(&order, i % N_ORDERS);
                order.n_members = at_most(order.n_members, 3);
                order.n_plans = at_most(order.n_plans, 3);
                order.n_tracks = at_most(order.n_tracks, TRACK_STEP + 3);
                if (order.kind == ORDER_PLACES)
                        order.places.n_waiting = at_most(order.places.n_waiting, 3);
                damage((size_t)peer_encode_order(&scratch, &order, bytes));
        }
        for (unsigned i = 0; i < 4 * (N_ANSWERS - ANSWER_REPORT); i++) {
                make_report(&report, ANSWER_REPORT + i % (N_ANSWERS - ANSWER_REPORT));
                report.n_members = at_most(report.n_members, 3);
                report.n_gone = at_most(report.n_gone, 3);
                report.n_plans = at_most(report.n_plans, 3);
                report.n_tracks = at_most(report.n_tracks, TRACK_STEP + 3);
                damage((size_t)peer_encode_report(&scratch, &report, bytes));
        }
}

TEST_ALONE(a_newer_minor_version_is_understood) {
        /* field 1000, a number; field 1001, bytes */
        static const uint8_t newer[] = { 0xc0, 0x3e, 0x07, 0xca, 0x3e, 0x02, 0x01, 0x02 };
        size_t n;

        make_report(&report, ANSWER_FROZEN);
        n = (size_t)peer_encode_report(&scratch, &report, bytes);
        memcpy(bytes + n, newer, sizeof(newer));
        memset(&heard_report, 0, sizeof(heard_report));
        assert_true(peer_decode_report(&scratch, bytes, n + sizeof(newer), &heard_report, &why));
        assert_same_report(&report, &heard_report);
        make_order(&order, ORDER_NEWGEN);
        n = (size_t)peer_encode_order(&scratch, &order, bytes);
        memcpy(bytes + n, newer, sizeof(newer));
        memset(&heard_order, 0, sizeof(heard_order));
        assert_true(peer_decode_order(&scratch, bytes, n + sizeof(newer), &heard_order, &why));
        assert_same_order(&order, &heard_order);
}

static bool decodes_order(Peer__Order *message) {
        size_t n = peer__order__pack(message, bytes);

        return peer_decode_order(&scratch, bytes, n, &heard_order, &why);
}

static bool decodes_report(Peer__Report *message) {
        size_t n = peer__report__pack(message, bytes);

        return peer_decode_report(&scratch, bytes, n, &heard_report, &why);
}

static Peer__Order plain_order(enum order_kind kind) {
        Peer__Order message = PEER__ORDER__INIT;

        message.major = PEER_MAJOR;
        message.kind = kind;
        message.term = 1;
        return message;
}

static Peer__Report plain_report(void) {
        Peer__Report message = PEER__REPORT__INIT;

        message.major = PEER_MAJOR;
        message.kind = ANSWER_REPORT;
        message.stamp = 1;
        return message;
}

#define BAD_ORDER(...) (bad = good, __VA_ARGS__, assert_false(decodes_order(&bad)), assert_non_null(why))
#define BAD(...) (bad = good, __VA_ARGS__, assert_false(decodes_report(&bad)), assert_non_null(why))

TEST_ALONE(times_that_contradict_each_other_are_refused) {
        const struct machine_times good = {
                .heartbeat = 2, .patience = 3, .death = 5, .abandon = 6, .drain = 1, .build = 1
        };
        struct machine_times bad;

        assert_true(post_times_valid(&good));
#define BAD_TIMES(...) (bad = good, __VA_ARGS__, assert_false(post_times_valid(&bad)))
        BAD_TIMES(bad.heartbeat = 0);
        BAD_TIMES(bad.patience = 2);
        BAD_TIMES(bad.patience = 5);
        BAD_TIMES(bad.death = 4); /* a sleep would be no longer than what counts of it */
        BAD_TIMES(bad.abandon = 5);
        BAD_TIMES(bad.abandon = UINT64_MAX);
        BAD_TIMES(bad.drain = 0);
        BAD_TIMES(bad.build = 0);
}

TEST_ALONE(reported_numbers_that_could_wrap_or_are_of_another_node_are_refused) {
        Peer__Member member = PEER__MEMBER__INIT, *members = &member;
        Peer__Report good = plain_report(), bad;
        Peer__Gone lost = PEER__GONE__INIT, *gone = &lost;
        uint64_t zero = 0;

        member.member = member.min_world = member.max_world = 1;
        BAD(bad.term = LIMIT_NUMBER + 1);
        BAD(bad.round = UINT64_MAX);
        BAD(bad.stamp = LIMIT_NUMBER + 1);
        BAD(bad.history_step = UINT64_MAX);
        BAD(bad.generation_term = UINT64_MAX);
        BAD(bad.generation_number = UINT32_MAX); /* none could follow */
        BAD(bad.comm_number = LIMIT_GENERATION + 1);
        BAD(bad.n_seq = 1, bad.seq = &(uint64_t){ UINT64_MAX });
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = 1, bad.mark = &(uint64_t){ UINT64_MAX },
            bad.committed = bad.prepared = &zero);
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = 1,
            bad.mark = bad.committed = bad.prepared = &(uint64_t){ UINT64_MAX });
        good.n_member_of = 1;
        good.member_of = &members;
        assert_true(decodes_report(&good));
        BAD(bad.from = 1); /* another node's member */
        BAD(member.timeout = LIMIT_NUMBER + 1);
        BAD(member.timeout = 0, member.last_call = UINT64_MAX);
        BAD(member.last_call = 0, member.grace = UINT64_MAX);
        BAD(member.grace = 0, member.tag_step = UINT64_MAX);
        BAD(member.tag_step = 0, member.member = 0);
        BAD(member.member = 1, member.min_world = 2);
        BAD(member.min_world = 1, member.in = true); /* of no generation */
        member.in = false;
        good.n_member_of = 0;
        good.n_gone = 1;
        good.gone = &gone;
        assert_true(decodes_report(&good));
        BAD(bad.from = 1);
}

TEST_ALONE(ordered_numbers_that_could_wrap_are_refused) {
        Peer__Order good = plain_order(ORDER_RUN), bad;

        assert_true(decodes_order(&good));
        BAD_ORDER(bad.term = LIMIT_NUMBER + 1);
        BAD_ORDER(bad.round = UINT64_MAX);
        BAD_ORDER(bad.stamp = LIMIT_NUMBER + 1);
        BAD_ORDER(bad.history_step = UINT64_MAX);
        BAD_ORDER(bad.generation_term = UINT64_MAX);
        BAD_ORDER(bad.generation_number = UINT32_MAX);
        BAD_ORDER(bad.comm_number = LIMIT_GENERATION + 1);
        BAD_ORDER(bad.n_seq = 1, bad.seq = &(uint64_t){ UINT64_MAX });
        BAD_ORDER(bad.n_go = 1, bad.go = &(uint64_t){ UINT64_MAX });
        BAD_ORDER(bad.n_mark = 1, bad.mark = &(uint64_t){ UINT64_MAX });
}

TEST_ALONE(a_generation_that_cannot_be_entered_is_refused) {
        Peer__OrderMember member[2] = { PEER__ORDER_MEMBER__INIT, PEER__ORDER_MEMBER__INIT },
                          *members[] = { &member[0], &member[1] };
        Peer__Order good = plain_order(ORDER_NEWGEN), bad;
        uint8_t node = 1, secret[2 * sizeof(heard_order.secret)];

        memset(secret, 7, sizeof(secret));
        good.world = 2;
        good.generation_number = good.comm_number = 1;
        good.set = (ProtobufCBinaryData){ 1, &node };
        good.n_member_of = 2;
        good.member_of = members;
        member[0].member = member[1].member = member[1].rank = 1;
        assert_true(decodes_order(&good));
        assert_true(sha256_is_none(&heard_order.secret));
        BAD_ORDER(bad.world = 0);
        BAD_ORDER(bad.source = 2);
        BAD_ORDER(bad.generation_number = 0);
        BAD_ORDER(bad.comm_number = 0);
        BAD_ORDER(node = 2); /* without the one that hears it */
        node = 1;
        BAD_ORDER(bad.kind = ORDER_RUN); /* which names no members */
        BAD_ORDER(member[1].rank = 0);
        BAD_ORDER(member[1].rank = 2);
        BAD_ORDER(member[1].rank = 1, member[1].member = member_id(1, 0, 1));
        BAD_ORDER(member[1].member = 0);
        BAD_ORDER(member[1].member = 1, member[1].slot = LIMIT_WORLD);
        BAD_ORDER(member[1].slot = 0, member[1].tag_step = UINT64_MAX);
        member[1].tag_step = 0;
        good.secret = (ProtobufCBinaryData){ sizeof(heard_order.secret), secret };
        assert_true(decodes_order(&good));
        assert_memory_equal(heard_order.secret.byte, secret, sizeof(heard_order.secret));
        BAD_ORDER(bad.secret.len--);
        BAD_ORDER(bad.secret.len++);
        BAD_ORDER(bad.secret.len = 1);
        BAD_ORDER(bad.secret.len = sizeof(secret));
        good.n_member_of = 0;
        BAD_ORDER(bad.kind = ORDER_RUN); /* which has no secret */
}

/* A node launches what it may, may what it is ready for, and is ready for a window. */
TEST_ALONE(launches_that_cannot_be_are_refused) {
        Peer__Report good = plain_report(), bad;
        uint64_t seq = 4, go = 5, ready = 4 + LIMIT_WINDOW, numbers[LIMIT_LANES + 1] = { 0 };

        good.n_seq = good.n_go = good.n_ready = 1;
        good.seq = &seq;
        good.go = &go;
        good.ready = &ready;
        assert_true(decodes_report(&good));
        assert_int_equal(heard_report.go[0], 5);
        assert_int_equal(heard_report.ready[0], 4 + LIMIT_WINDOW);
        BAD(ready = 5 + LIMIT_WINDOW);
        BAD(ready = 4);
        BAD(ready = 5, go = 3);
        BAD(go = 5, bad.n_ready = 0);
        BAD(bad.n_seq = 0, ready = 1 + LIMIT_WINDOW);
        BAD(bad.n_ready = LIMIT_LANES + 1, bad.ready = numbers);
        BAD(bad.n_go = LIMIT_LANES + 1, bad.go = numbers);
        BAD(seq = LIMIT_NUMBER, go = ready = LIMIT_NUMBER + 1);
        good.n_ready = good.n_go = 0; /* not agreed on */
        assert_true(decodes_report(&good));
}

static uint64_t numbers[LIMIT_SEATS + 1];
static uint8_t wide[NODESET_WORDS * 8 + 1];

TEST_ALONE(reports_that_break_a_limit_are_refused) {
        Peer__Member member = PEER__MEMBER__INIT, *members[LIMIT_SEATS + 1];
        Peer__Gone lost = PEER__GONE__INIT, *gone[LIMIT_LOCAL + 1];
        Peer__Report good = plain_report(), bad;
        Peer__ReportPlan plan[2] = { PEER__REPORT_PLAN__INIT, PEER__REPORT_PLAN__INIT },
                         *plans[LIMIT_PLANS + 1];

        member.member = member.min_world = member.max_world = 1;
        for (unsigned i = 0; i < LIMIT_SEATS + 1; i++)
                members[i] = &member;
        for (unsigned i = 0; i < LIMIT_LOCAL + 1; i++)
                gone[i] = &lost;
        for (unsigned i = 0; i < LIMIT_PLANS + 1; i++)
                plans[i] = &plan[i > 0];
        assert_true(decodes_report(&good));
        BAD(bad.major = PEER_MAJOR + 1);
        BAD(bad.major = 0);
        BAD(bad.kind = N_ANSWERS);
        BAD(bad.kind = ANSWER_NONE);
        BAD(bad.stamp = 0);
        BAD(bad.from = LIMIT_NODES);
        BAD(bad.world = LIMIT_WORLD + 1);
        BAD(bad.world = 1); /* of no generation */
        BAD(bad.end = N_JOB_ENDS);
        BAD(bad.origin = N_ORIGINS);
        BAD(bad.note = N_NOTES);
        BAD(bad.note = NOTE_LATE);   /* of no time */
        BAD(bad.note = NOTE_FAILED); /* for no reason */
        BAD(bad.n_seq = LIMIT_LANES + 1, bad.seq = numbers);
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = LIMIT_TRACKS + 1,
            bad.mark = bad.committed = bad.prepared = numbers);
        BAD(bad.n_mark = bad.n_committed = 2, bad.n_prepared = 1,
            bad.mark = bad.committed = bad.prepared = numbers);
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = 1, bad.mark = bad.committed = numbers,
            bad.prepared = &(uint64_t){ 2 });
        BAD(bad.n_member_of = LIMIT_SEATS + 1, bad.member_of = members);
        BAD(bad.n_gone = LIMIT_LOCAL + 1, bad.gone = gone);
        BAD(bad.n_plan = LIMIT_PLANS + 1, bad.plan = plans);
        BAD(bad.set.data = wide, bad.set.len = sizeof(wide));
        BAD(bad.links.data = wide, bad.links.len = sizeof(wide));
        good.n_plan = 2;
        good.plan = plans;
        good.n_mark = good.n_committed = good.n_prepared = 3;
        good.mark = good.committed = good.prepared = numbers;
        for (unsigned i = 0; i < 2; i++) {
                plan[i].track = 1 + i;
                plan[i].open = true;
                plan[i].unit = 1;
                plan[i].turn = 4 + i;
        }
        assert_true(decodes_report(&good));
        BAD(plan[0].track = 2);
        BAD(plan[0].track = LIMIT_TRACKS);
        BAD(plan[0].track = 0);
        plan[0].track = 1;
        BAD(plan[0].before = LIMIT_NUMBER + 1);
        plan[0].before = 0;
        BAD(plan[0].turn = plan[1].turn);
        BAD(plan[0].turn = LIMIT_NUMBER + 1);
        BAD(plan[0].turn = 4, plan[0].unit = 0);
        BAD(plan[0].unit = 2); /* which is not open there */
        plan[0].unit = 1;
        BAD(plan[0].open = false);
        plan[0].open = true;
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = 2);
        assert_true(decodes_report(&good));
}

TEST_ALONE(orders_that_break_a_limit_are_refused) {
        Peer__OrderMember member = PEER__ORDER_MEMBER__INIT, *members[LIMIT_SEATS + 1];
        Peer__OrderPlan plan[2] = { PEER__ORDER_PLAN__INIT, PEER__ORDER_PLAN__INIT }, *plans[LIMIT_PLANS + 1];
        Peer__Order good = plain_order(ORDER_RUN), bad;

        member.member = 1;
        for (unsigned i = 0; i < LIMIT_SEATS + 1; i++)
                members[i] = &member;
        for (unsigned i = 0; i < LIMIT_PLANS + 1; i++)
                plans[i] = &plan[i > 0];
        BAD_ORDER(bad.major = PEER_MAJOR + 1);
        BAD_ORDER(bad.major = 0);
        BAD_ORDER(bad.kind = N_ORDERS);
        BAD_ORDER(bad.term = 0);
        BAD_ORDER(bad.to = LIMIT_NODES);
        BAD_ORDER(bad.world = LIMIT_WORLD + 1);
        BAD_ORDER(bad.end = N_JOB_ENDS);
        BAD_ORDER(bad.note = NOTE_FACTS); /* only EXPLAIN asks */
        BAD_ORDER(bad.n_seq = LIMIT_LANES + 1, bad.seq = numbers);
        BAD_ORDER(bad.n_go = LIMIT_LANES + 1, bad.go = numbers);
        BAD_ORDER(bad.n_mark = LIMIT_TRACKS + 1, bad.mark = numbers);
        BAD_ORDER(bad.n_member_of = LIMIT_SEATS + 1, bad.member_of = members);
        BAD_ORDER(bad.n_plan = LIMIT_PLANS + 1, bad.plan = plans);
        BAD_ORDER(bad.set.data = wide, bad.set.len = sizeof(wide));
        BAD_ORDER(bad.links.data = wide, bad.links.len = sizeof(wide));
        good.n_plan = 2;
        good.plan = plans;
        good.n_mark = 3;
        good.mark = numbers;
        for (unsigned i = 0; i < 2; i++) {
                plan[i].track = 1 + i;
                plan[i].open = true;
                plan[i].unit = 1;
                plan[i].turn = 4 + i;
        }
        assert_true(decodes_order(&good));
        BAD_ORDER(plan[0].track = 2);
        BAD_ORDER(plan[0].track = LIMIT_TRACKS);
        BAD_ORDER(plan[0].track = 0);
        plan[0].track = 1;
        BAD_ORDER(plan[0].before = LIMIT_NUMBER + 1);
        plan[0].before = 0;
        BAD_ORDER(plan[0].turn = plan[1].turn);
        BAD_ORDER(plan[0].turn = 0);
        BAD_ORDER(plan[0].turn = 4, plan[0].unit = LIMIT_NUMBER + 1);
        plan[0].unit = 1;
        BAD_ORDER(plan[0].open = false);
        plan[0].open = true;
        BAD_ORDER(bad.n_mark = 2);
        assert_true(decodes_order(&good));
}

/* Orders about one member, or about one plan. */
TEST_ALONE(orders_to_single_members_that_make_no_sense_are_refused) {
        Peer__OrderMember member = PEER__ORDER_MEMBER__INIT, *members = &member;
        Peer__Order good = plain_order(ORDER_REFUSE), bad;
        Peer__Refusal refusal = PEER__REFUSAL__INIT;
        Peer__Places places = PEER__PLACES__INIT;

        member.member = 1;
        good.refusal = &refusal;
        assert_true(decodes_order(&good)); /* a goodbye */
        BAD_ORDER(bad.end = JOB_END_REFUSED);
        refusal.code = 1;
        BAD_ORDER(bad.member = 1);
        good.end = JOB_END_REFUSED;
        assert_true(decodes_order(&good));
        BAD_ORDER(bad.member = member_id(1, 0, 1));
        BAD_ORDER(bad.n_member_of = 1, bad.member_of = &members);
        refusal.text = (ProtobufCBinaryData){ 3, (uint8_t *)"a\0b" };
        BAD_ORDER(bad.member = 1);
        refusal.text = (ProtobufCBinaryData){ 2, (uint8_t *)"\xc3\x28" };
        BAD_ORDER(bad.member = 1);
        refusal.text = (ProtobufCBinaryData){ 0 };
        good.kind = ORDER_REJECT;
        assert_true(decodes_order(&good));
        BAD_ORDER(refusal.code = 0);
        good.kind = ORDER_EXPLAIN;
        good.note = NOTE_LACKS;
        assert_true(decodes_order(&good));
        BAD_ORDER(bad.note = NOTE_LATE);
        BAD_ORDER(bad.note = NOTE_NONE);
        good.note = NOTE_NONE;
        good.kind = ORDER_PLACES;
        good.places = &places;
        assert_true(decodes_order(&good));
        places.grace = UINT64_MAX;
        BAD_ORDER(bad.member = 1);
        places.grace = 0;
        places.n_waiting = 1;
        places.waiting = &(uint64_t){ member_id(1, 0, 1) };
        BAD_ORDER(bad.member = 1);
        places.n_waiting = LIMIT_SEATS + 1;
        places.waiting = numbers;
        BAD_ORDER(bad.member = 1);
}

TEST_ALONE(an_invalid_message_is_not_said) {
        make_order(&order, ORDER_NEWGEN);
        order.source = order.world;
        assert_int_equal(peer_encode_order(&scratch, &order, bytes), -EINVAL);
        make_report(&report, ANSWER_ACK);
        report.stamp = 0;
        assert_int_equal(peer_encode_report(&scratch, &report, bytes), -EINVAL);
}

TEST_ALONE(little_scratch_is_no_harm) {
        struct scratch little = { .buffer = memory };
        ssize_t n;

        make_report(&report, ANSWER_REPORT);
        report.n_members = LIMIT_SEATS;
        report_fill_members(&report);
        n = peer_encode_report(&scratch, &report, bytes);
        assert_true(n > 0);
        for (little.size = 0; little.size < 20000; little.size += 97) {
                assert_int_equal(peer_encode_report(&little, &report, again), -EMSGSIZE);
                assert_false(peer_decode_report(&little, bytes, (size_t)n, &heard_report, &why));
                assert_string_equal(why, "it is too complex");
        }
        make_order(&order, ORDER_NEWGEN);
        order.n_members = LIMIT_WORLD;
        order_fill_members(&order);
        n = peer_encode_order(&scratch, &order, bytes);
        assert_true(n > 0);
        for (little.size = 0; little.size < 20000; little.size += 97) {
                assert_int_equal(peer_encode_order(&little, &order, again), -EMSGSIZE);
                assert_false(peer_decode_order(&little, bytes, (size_t)n, &heard_order, &why));
                assert_string_equal(why, "it is too complex");
        }
}
