/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders and reports as bytes: whatever is valid comes back as it was, and no bytes do harm.
 * test_peer_refused.c has those that are refused.
 */
#include "tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/wire/peer.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static uint8_t bytes[PEER_MAX], again[PEER_MAX];
static struct order order_in, order_out;
static struct report report_in, report_out;
static const char *why;
static uint64_t seed = 1;

/* ---- values for both ---- */

static uint64_t noise(void) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed * UINT64_C(0x9E3779B97F4A7C15);
}

/* Small numbers, large ones and all between. */
static uint64_t any(void) {
        return noise() >> noise() % 64;
}

static uint64_t number(void) {
        return any() & (LIMIT_NUMBER - 1);
}

static uint32_t below(uint32_t n) {
        return (uint32_t)((noise() >> 32) * n >> 32);
}

/* Returns a number from 0 to `most`: often 0, and often all. */
static uint32_t some(uint32_t most) {
        uint32_t kind = below(4);

        return kind == 0 ? 0 : kind == 1 ? most : kind == 2 ? below(9) % (most + 1) : below(most + 1);
}

static uint64_t member_for(uint32_t node) {
        return member_id(node, any(), any() | 1);
}

static struct generation any_generation(void) {
        return (struct generation){ number(), 1 + (uint32_t)any() % LIMIT_GENERATION, (uint32_t)any() };
}

static struct tag any_tag(void) {
        return (struct tag){ any(), any(), (uint32_t)any(), number(), below(2), any() };
}

static void any_refusal(struct refusal *ret, uint32_t code) {
        *ret = (struct refusal){
                .code = code, .has_culprit = below(2), .rank = (uint32_t)any(), .pid = (int32_t)any()
        };
        memset(ret->text, 't', some(sizeof(ret->text) - 1));
        memset(ret->parameter, 'p', some(LIMIT_NAME));
}

/* Names some nodes, and that one among them. Returns the number of words. */
static uint32_t any_nodes(uint32_t node, uint64_t set[NODESET_WORDS]) {
        uint32_t n = some(NODESET_WORDS);

        n += n == 0;
        for (uint32_t i = 0; i < n; i++)
                set[i] = below(2) == 0 ? any() : UINT64_MAX;
        set[0] |= UINT64_C(1) << node;
        return n;
}

/* No two units have the same one. */
static uint64_t any_turn(uint32_t plan) {
        return (any() >> 8) * LIMIT_PLANS + plan + 1;
}

/* A comparison leaves the padding out: tidy() copies a struct field by field into zeros. */
struct field {
        size_t at, size;
};

#define FIELD(of, name)                                                                                      \
        { offsetof(struct of, name), sizeof(((struct of *)NULL)->name) }
#define T(name) FIELD(tag, name)
static const struct field tag_fields[] = { T(incarnation), T(term),       T(generation),
                                           T(step),        T(checkpoint), T(plans) };
#define E(name) FIELD(refusal, name)
static const struct field refusal_fields[] = {
        E(code), E(has_culprit), E(rank), E(pid), E(text), E(parameter)
};

static void tidy(void *what, size_t size, const struct field *field, unsigned n) {
        unsigned char neat[sizeof(struct refusal) + sizeof(struct plan_facts) +
                           sizeof(struct report_member)] = { 0 };

        for (unsigned i = 0; i < n; i++)
                memcpy(neat + field[i].at, (unsigned char *)what + field[i].at, field[i].size);
        memcpy(what, neat, size);
}

#define TIDY(what, of)                                                                                       \
        tidy(what, sizeof(struct of), of##_fields, sizeof(of##_fields) / sizeof(of##_fields[0]))

/* The bytes leave out words at the end that name no node. */
static void assert_words(uint32_t heard, uint32_t said, struct nodeset set, struct nodeset links) {
        uint32_t set_length = nodeset_length(set), links_length = nodeset_length(links);

        assert_true(heard <= said);
        assert_int_equal(heard, set_length > links_length ? set_length : links_length);
}

/* ---- orders ---- */

/* The nodes agree on the launches of some of them. */
static void fill_order_lanes(struct order *o) {
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                o->seq[lane] = number();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                o->go[lane] = number();
}

static void fill_order_plans(struct order *o) {
        for (uint32_t i = 0; i < o->n_plans; i++) {
                struct order_plan *plan = &o->plan[i];

                *plan = (struct order_plan){ .digest = any(),
                                             .ordinal = (uint32_t)any(),
                                             .track = below(2) ? TRACK_STEP + i : 0,
                                             .open = below(2),
                                             .kept = below(2),
                                             .before = number() };
                if (plan->open && track_is_step(plan->track) && plan->track < o->n_tracks) {
                        plan->unit = 1 + any() / 4;
                        plan->turn = any_turn(i);
                }
        }
}

/* They stand by rank. */
static void fill_order_members(struct order *o) {
        if (o->world < o->n_members)
                o->world = LIMIT_WORLD;
        for (uint32_t i = 0; i < o->n_members; i++)
                o->member_of[i] = (struct order_member){ .member = member_for(o->to),
                                                         .tag = any_tag(),
                                                         .rank = i * (o->world / o->n_members),
                                                         .slot = below(LIMIT_WORLD),
                                                         .id = any(),
                                                         .behind = below(2) };
}

static void fill_places(struct order *o) {
        o->places = (struct order_places){ .places.grace = number(), .n_waiting = some(LIMIT_SEATS) };
        for (uint32_t i = 0; i < LIMIT_VACANT / 64; i++)
                o->places.places.vacant[i] = any();
        for (uint32_t i = 0; i < o->places.n_waiting; i++)
                o->places.waiting[i] = member_for(o->to);
}

/* Makes a valid one of that kind, with something in every field. All that it does not say is 0. */
static void make_order(struct order *o, enum order_kind kind) {
        memset(o, 0, sizeof(*o));
        o->kind = kind;
        o->to = below(64);
        o->instance = any();
        o->term = number() | 1;
        o->round = number();
        o->stamp = number();
        o->generation = any_generation();
        o->comm = any_generation();
        fill_order_lanes(o);
        o->history = any_tag();
        o->behind = below(2);
        o->torn = below(2);
        o->world = 1 + below(LIMIT_WORLD);
        o->source = below(o->world);
        o->end = below(N_JOB_ENDS);
        o->loss = (struct membership_loss){ any(), (uint32_t)any(), (int32_t)any(), (uint32_t)any() };
        for (unsigned i = 0; i < sizeof(o->secret) && kind == ORDER_NEWGEN && below(2); i++)
                o->secret.byte[i] = (uint8_t)any();
        o->member = member_for(o->to);
        o->next_plan = (uint32_t)any();
        o->note = kind != ORDER_EXPLAIN ? NOTE_NONE : below(2) ? NOTE_FACTS : NOTE_LACKS;
        o->ordinal = (uint32_t)any();
        o->index = (uint32_t)any();
        o->n_tracks = some(LIMIT_TRACKS);
        for (uint32_t i = 0; i < o->n_tracks; i++)
                o->mark[i] = number();
        o->n_words = any_nodes(o->to, o->set);
        o->n_plans = some(LIMIT_PLANS);
        fill_order_plans(o);
        if (kind == ORDER_REFUSE) {
                any_refusal(&o->refusal, o->end != JOB_END_NONE ? (uint32_t)any() | 1 : 0);
        } else if (kind == ORDER_REJECT) {
                any_refusal(&o->refusal, (uint32_t)any() | 1);
        } else if (kind == ORDER_PLACES) {
                fill_places(o);
        } else if (kind == ORDER_NEWGEN) {
                o->n_members = some(LIMIT_WORLD);
                fill_order_members(o);
        }
        assert_true(order_valid(o));
}

#define L(name) FIELD(membership_loss, name)
static const struct field membership_loss_fields[] = { L(member), L(rank), L(pid), L(cause) };
#define M(name) FIELD(order_member, name)
static const struct field order_member_fields[] = { M(member), M(tag), M(rank), M(slot), M(id), M(behind) };
#define P(name) FIELD(order_plan, name)
static const struct field order_plan_fields[] = { P(digest), P(unit),    P(turn), P(before),
                                                  P(track),  P(ordinal), P(open), P(kept) };

static void order_tidy(struct order *o) {
        TIDY(&o->history, tag);
        TIDY(&o->loss, membership_loss);
        for (uint32_t i = 0; i < o->n_members; i++) {
                TIDY(&o->member_of[i].tag, tag);
                TIDY(&o->member_of[i], order_member);
        }
        for (uint32_t i = 0; i < o->n_plans; i++)
                TIDY(&o->plan[i], order_plan);
        if (o->kind == ORDER_REFUSE || o->kind == ORDER_REJECT)
                TIDY(&o->refusal, refusal);
}

static void assert_same_order(struct order *said, struct order *heard) {
        assert_words(heard->n_words, said->n_words, order_set(said), (struct nodeset){ 0 });
        heard->n_words = said->n_words;
        order_tidy(said);
        order_tidy(heard);
        assert_memory_equal(said, heard, sizeof(*said));
}

static size_t order_encoded(const struct order *o) {
        ssize_t n = peer_encode_order(&scratch, o, bytes);

        assert_true(n > 0);
        return (size_t)n;
}

static bool order_heard(const void *said, size_t n) {
        bool heard = peer_decode_order(&scratch, said, n, &order_out, &why);

        assert_true(heard ? why == NULL && order_valid(&order_out) : why != NULL);
        return heard;
}

/* ---- reports ---- */

static struct report_member any_report_member(const struct report *r) {
        uint32_t most = 1 + below(LIMIT_WORLD);
        bool inside = r->world > 0 && below(2) == 0;

        return (struct report_member){
                .request = { .member = member_for(r->from),
                             .pid = (int32_t)any(),
                             .min_world = 1 + below(most),
                             .max_world = most,
                             .has_rank = below(2),
                             .has_slot = below(2),
                             .rank = below(LIMIT_WORLD),
                             .slot = below(LIMIT_WORLD),
                             .spare = below(2),
                             .returns = below(2),
                             .incarnation = any(),
                             .timeout = number(),
                             .last_call = number(),
                             .grace = number(),
                             .host = r->host,
                             .device = r->device,
                             .identity = any(),
                             .instance = any(),
                             .node = r->from },
                .tag = any_tag(),
                .rank = inside ? below(r->world) : (uint32_t)any(),
                .slot = below(LIMIT_WORLD),
                .id = any(),
                .in = inside,
                .behind = below(2),
                .leaving = below(2),
        };
}

static void fill_report_members(struct report *r) {
        for (uint32_t i = 0; i < r->n_members; i++)
                r->member_of[i] = any_report_member(r);
        for (uint32_t i = 0; i < r->n_gone; i++)
                r->gone[i] = (struct report_gone){ .member = member_for(r->from),
                                                   .cause = (uint32_t)any(),
                                                   .rank = below(r->world > 0 ? r->world : 1),
                                                   .in = r->world > 0 && below(2) };
}

/* The nodes agree on the launches of some of them. */
static void fill_report_lanes(struct report *r) {
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                r->seq[lane] = number();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;) {
                r->go[lane] = r->seq[lane] + below(3);
                r->ready[lane] = r->go[lane] + below(LIMIT_WINDOW - 1);
        }
}

static void fill_report_tracks(struct report *r) {
        for (uint32_t i = 0; i < r->n_tracks; i++) {
                r->mark[i] = number();
                r->committed[i] = number();
                r->prepared[i] = r->committed[i] + below(2);
        }
}

static void fill_report_plans(struct report *r) {
        for (uint32_t i = 0; i < r->n_plans; i++) {
                struct report_plan *plan = &r->plan[i];

                *plan = (struct report_plan){ .digest = any(),
                                              .ordinal = (uint32_t)any(),
                                              .track = below(2) ? TRACK_STEP + i : 0,
                                              .open = below(2),
                                              .voids = below(2),
                                              .before = number() };
                if (plan->open && track_is_step(plan->track) && plan->track < r->n_tracks) {
                        plan->unit = r->committed[plan->track] + 1;
                        plan->turn = below(2) ? any_turn(i) : 0;
                }
        }
}

static void any_facts(struct plan_facts *ret) {
        *ret = (struct plan_facts){ .prefix = any(),
                                    .n_params = some(LIMIT_PARAMS),
                                    .n_buckets = some(LIMIT_BUCKETS),
                                    .reduce = below(WIRE__REDUCE__PROD + 1),
                                    .voids = below(2),
                                    .placed = below(2),
                                    .dtype = below(WIRE__DTYPE__U8 + 1),
                                    .dims = some(LIMIT_DIMS),
                                    .bucket = (uint32_t)any(),
                                    .bytes = any(),
                                    .rank = (uint32_t)any(),
                                    .pid = (int32_t)any() };
        ret->index = below(facts_entries(ret) + 1);
        for (uint32_t i = 0; i < ret->dims; i++)
                ret->shape[i] = any();
        if (ret->index < ret->n_params)
                memset(ret->name, 'n', 1 + below(LIMIT_NAME));
}

static void fill_note(struct report *r) {
        r->note = below(N_NOTES);
        r->ordinal = (uint32_t)any();
        if (r->note == NOTE_FACTS)
                any_facts(&r->about.facts);
        else if (r->note == NOTE_LACKS || r->note == NOTE_FAILED)
                any_refusal(&r->about.refusal, (uint32_t)any() | 1);
        else if (r->note == NOTE_LATE)
                r->about.waited = number() | 1;
}

/* Likewise. */
static void make_report(struct report *r, enum report_kind kind) {
        memset(r, 0, sizeof(*r));
        r->kind = kind;
        r->from = below(64);
        r->instance = any();
        r->term = number();
        r->round = number();
        r->stamp = number() | 1;
        r->generation = any_generation();
        r->comm = any_generation();
        fill_report_lanes(r);
        r->history = any_tag();
        r->host = (uint32_t)any();
        r->device = (uint32_t)any();
        r->engine = (uint32_t)any();
        r->awaits = below(2);
        r->running = below(2);
        r->wait = below(2);
        r->away = below(2);
        r->behind = below(2);
        r->torn = below(2);
        r->cause = (uint32_t)any();
        r->world = some(LIMIT_WORLD);
        r->end = below(N_JOB_ENDS);
        r->next_plan = (uint32_t)any();
        r->n_tracks = some(LIMIT_TRACKS);
        fill_report_tracks(r);
        r->n_words = any_nodes(r->from, r->set);
        for (uint32_t i = 0; i < r->n_words; i++)
                r->links[i] = below(2) == 0 ? 0 : any();
        r->n_plans = some(LIMIT_PLANS);
        fill_report_plans(r);
        r->n_members = some(LIMIT_SEATS);
        r->n_gone = some(LIMIT_LOCAL);
        fill_report_members(r);
        fill_note(r);
        assert_true(report_valid(r));
}

#define R(name) FIELD(membership_request, name)
static const struct field membership_request_fields[] = {
        R(member), R(pid),    R(min_world), R(max_world),   R(has_rank), R(has_slot),  R(rank),
        R(slot),   R(spare),  R(returns),   R(incarnation), R(timeout),  R(last_call), R(grace),
        R(host),   R(device), R(identity),  R(instance),    R(node)
};
#define N(name) FIELD(report_member, name)
static const struct field report_member_fields[] = { N(request), N(tag),    N(rank),    N(slot), N(id),
                                                     N(in),      N(behind), N(leaving), N(waits) };
#define Q(name) FIELD(report_plan, name)
static const struct field report_plan_fields[] = { Q(digest), Q(unit),    Q(turn), Q(before),
                                                   Q(track),  Q(ordinal), Q(open), Q(voids) };
#define G(name) FIELD(report_gone, name)
static const struct field report_gone_fields[] = { G(member), G(cause) };
#define F(name) FIELD(plan_facts, name)
static const struct field plan_facts_fields[] = { F(prefix), F(index),  F(n_params), F(n_buckets), F(reduce),
                                                  F(voids),  F(placed), F(name),     F(dtype),     F(dims),
                                                  F(bucket), F(shape),  F(bytes),    F(rank),      F(pid) };

static void report_tidy(struct report *r) {
        TIDY(&r->history, tag);
        for (uint32_t i = 0; i < r->n_members; i++) {
                TIDY(&r->member_of[i].tag, tag);
                TIDY(&r->member_of[i].request, membership_request);
                TIDY(&r->member_of[i], report_member);
        }
        for (uint32_t i = 0; i < r->n_plans; i++)
                TIDY(&r->plan[i], report_plan);
        for (uint32_t i = 0; i < r->n_gone; i++)
                TIDY(&r->gone[i], report_gone);
        TIDY(&r->about.facts, plan_facts);
        TIDY(&r->about.refusal, refusal);
}

static void assert_same_report(struct report *said, struct report *heard) {
        assert_words(heard->n_words, said->n_words, report_set(said), report_links(said));
        heard->n_words = said->n_words;
        report_tidy(said);
        report_tidy(heard);
        assert_memory_equal(said, heard, sizeof(*said));
}

static size_t report_encoded(const struct report *r) {
        ssize_t n = peer_encode_report(&scratch, r, bytes);

        assert_true(n > 0);
        return (size_t)n;
}

static bool report_heard(const void *said, size_t n) {
        bool heard = peer_decode_report(&scratch, said, n, &report_out, &why);

        assert_true(heard ? why == NULL && report_valid(&report_out) : why != NULL);
        return heard;
}

/* ---- valid orders and reports ---- */

TEST_ALONE(each_order_comes_back_as_it_was) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = 0; kind < N_ORDERS; kind++) {
                        size_t n;

                        make_order(&order_in, kind);
                        n = order_encoded(&order_in);
                        memset(&order_out, 0, sizeof(order_out));
                        assert_true(order_heard(bytes, n));
                        assert_int_equal(peer_encode_order(&scratch, &order_out, again), n);
                        assert_memory_equal(bytes, again, n);
                        assert_same_order(&order_in, &order_out);
                }
}

TEST_ALONE(each_report_comes_back_as_it_was) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++) {
                        size_t n;

                        make_report(&report_in, kind);
                        n = report_encoded(&report_in);
                        memset(&report_out, 0, sizeof(report_out));
                        assert_true(report_heard(bytes, n));
                        assert_int_equal(peer_encode_report(&scratch, &report_out, again), n);
                        assert_memory_equal(bytes, again, n);
                        assert_same_report(&report_in, &report_out);
                }
}

/* The copy has no more room than it needs: a sanitizer sees an access behind it. */
TEST_ALONE(a_copy_of_an_order_says_the_same_in_as_many_bytes_as_it_needs) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = 0; kind < N_ORDERS; kind++) {
                        struct order *copy;
                        size_t n;

                        make_order(&order_in, kind);
                        n = order_encoded(&order_in);
                        copy = test_malloc(order_bytes(&order_in));
                        memset(copy, 0xa5, order_bytes(&order_in));
                        order_copy(copy, &order_in);
                        assert_int_equal(peer_encode_order(&scratch, copy, again), n);
                        assert_memory_equal(bytes, again, n);
                        test_free(copy);
                }
}

TEST_ALONE(a_copy_of_a_report_says_the_same_in_as_many_bytes_as_it_needs) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++) {
                        struct report *copy;
                        size_t n;

                        make_report(&report_in, kind);
                        n = report_encoded(&report_in);
                        copy = test_malloc(report_bytes(&report_in));
                        memset(copy, 0xa5, report_bytes(&report_in));
                        report_copy(copy, &report_in);
                        assert_int_equal(peer_encode_report(&scratch, copy, again), n);
                        assert_memory_equal(bytes, again, n);
                        test_free(copy);
                }
}

static const struct tag largest_tag = { UINT64_MAX, UINT64_MAX, UINT32_MAX, LIMIT_NUMBER, true, UINT64_MAX };
static const struct generation largest_generation = { LIMIT_NUMBER, LIMIT_GENERATION, UINT32_MAX };

/* Every number is as large as it can be. */
TEST_ALONE(the_largest_order_fits) {
        size_t n;

        make_order(&order_in, ORDER_NEWGEN);
        order_in.to = LIMIT_NODES - 1;
        order_in.instance = UINT64_MAX;
        order_in.term = order_in.round = order_in.stamp = LIMIT_NUMBER;
        order_in.generation = order_in.comm = largest_generation;
        order_in.history = largest_tag;
        order_in.behind = order_in.torn = true;
        order_in.world = order_in.n_members = LIMIT_WORLD;
        order_in.loss = (struct membership_loss){ UINT64_MAX, UINT32_MAX, INT32_MIN, UINT32_MAX };
        order_in.member = UINT64_MAX;
        order_in.next_plan = order_in.ordinal = order_in.index = UINT32_MAX;
        memset(&order_in.secret, 0xff, sizeof(order_in.secret));
        for (uint32_t i = 0; i < LIMIT_LANES; i++)
                order_in.seq[i] = order_in.go[i] = LIMIT_NUMBER;
        order_in.n_tracks = LIMIT_TRACKS;
        for (uint32_t i = 0; i < LIMIT_TRACKS; i++)
                order_in.mark[i] = LIMIT_NUMBER;
        order_in.n_plans = LIMIT_PLANS;
        for (uint32_t i = 0; i < LIMIT_PLANS; i++)
                order_in.plan[i] = (struct order_plan){ .digest = UINT64_MAX,
                                                        .unit = LIMIT_NUMBER,
                                                        .turn = LIMIT_NUMBER - i,
                                                        .ordinal = UINT32_MAX,
                                                        .track = TRACK_STEP + i,
                                                        .open = true,
                                                        .kept = true,
                                                        .before = LIMIT_NUMBER };
        order_in.n_words = NODESET_WORDS;
        memset(order_in.set, 0xff, sizeof(order_in.set));
        for (uint32_t i = 0; i < LIMIT_WORLD; i++)
                order_in.member_of[i] = (struct order_member){ UINT64_MAX,      largest_tag, i,
                                                               LIMIT_WORLD - 1, UINT64_MAX,  true };
        n = order_encoded(&order_in);
        assert_true(n < PEER_MAX);
        assert_true(order_heard(bytes, n));
        assert_int_equal(order_out.n_members, LIMIT_WORLD);
}

TEST_ALONE(the_largest_report_fits) {
        size_t n;

        make_report(&report_in, ANSWER_REPORT);
        report_in.from = LIMIT_NODES - 1;
        report_in.term = report_in.round = report_in.stamp = LIMIT_NUMBER;
        report_in.history = largest_tag;
        for (uint32_t i = 0; i < LIMIT_LANES; i++)
                report_in.seq[i] = report_in.go[i] = report_in.ready[i] = LIMIT_NUMBER;
        report_in.n_members = LIMIT_SEATS;
        report_in.n_gone = LIMIT_LOCAL;
        report_in.n_tracks = LIMIT_TRACKS;
        report_in.n_plans = LIMIT_PLANS;
        for (uint32_t i = 0; i < LIMIT_PLANS; i++)
                report_in.plan[i] = (struct report_plan){ .digest = UINT64_MAX,
                                                          .unit = LIMIT_NUMBER,
                                                          .turn = LIMIT_NUMBER - i,
                                                          .ordinal = UINT32_MAX,
                                                          .track = TRACK_STEP + i,
                                                          .open = true,
                                                          .voids = true,
                                                          .before = LIMIT_NUMBER };
        report_in.n_words = NODESET_WORDS;
        memset(report_in.set, 0xff, sizeof(report_in.set));
        memset(report_in.links, 0xff, sizeof(report_in.links));
        for (uint32_t i = 0; i < LIMIT_LOCAL; i++)
                report_in.gone[i] = (struct report_gone){ UINT64_MAX, UINT32_MAX, LIMIT_WORLD - 1, true };
        for (uint32_t i = 0; i < LIMIT_TRACKS; i++) {
                report_in.mark[i] = LIMIT_NUMBER;
                report_in.committed[i] = LIMIT_NUMBER - 1;
                report_in.prepared[i] = LIMIT_NUMBER;
        }
        report_in.world = LIMIT_WORLD;
        report_in.generation = report_in.comm = largest_generation;
        for (uint32_t i = 0; i < LIMIT_SEATS; i++) {
                struct report_member *member = &report_in.member_of[i];

                member->tag = largest_tag;
                member->request = (struct membership_request){
                        UINT64_MAX,   INT32_MIN,    LIMIT_WORLD,     LIMIT_WORLD,
                        true,         true,         LIMIT_WORLD - 1, LIMIT_WORLD - 1,
                        true,         true,         UINT64_MAX,      LIMIT_NUMBER,
                        LIMIT_NUMBER, LIMIT_NUMBER, report_in.host,  report_in.device,
                        UINT64_MAX,   UINT64_MAX,   report_in.from
                };
                member->rank = member->slot = LIMIT_WORLD - 1;
                member->id = UINT64_MAX;
                member->in = member->behind = member->leaving = true;
        }
        report_in.note = NOTE_FAILED;
        report_in.ordinal = UINT32_MAX;
        report_in.about.refusal = (struct refusal){
                .code = UINT32_MAX, .has_culprit = true, .rank = UINT32_MAX, .pid = INT32_MIN
        };
        memset(report_in.about.refusal.text, 't', sizeof(report_in.about.refusal.text) - 1);
        memset(report_in.about.refusal.parameter, 'p', LIMIT_NAME);
        n = report_encoded(&report_in);
        assert_true(n < PEER_MAX);
        assert_true(report_heard(bytes, n));
        assert_int_equal(report_out.n_members, LIMIT_SEATS);
}

/* A job has few members on each of many nodes. */
TEST_ALONE(an_ordinary_order_is_small) {
        for (unsigned kind = 0; kind < ORDER_REFUSE; kind++) {
                make_order(&order_in, kind);
                order_in.n_tracks = 3;
                memset(order_in.mark, 0, sizeof(order_in.mark));
                order_in.n_plans %= 9;
                fill_order_plans(&order_in);
                order_in.n_words = NODESET_WORDS;
                memset(order_in.set, 0xff, sizeof(order_in.set));
                order_in.n_members = 0;
                assert_true(order_encoded(&order_in) <= 2048);
                if (kind != ORDER_NEWGEN)
                        continue;
                order_in.n_members = 8;
                fill_order_members(&order_in);
                assert_true(order_encoded(&order_in) <= 4096);
        }
}

TEST_ALONE(an_ordinary_report_is_small) {
        for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++) {
                make_report(&report_in, kind);
                report_in.note = NOTE_NONE;
                report_in.n_tracks = 3;
                memset(report_in.mark, 0, sizeof(report_in.mark));
                memset(report_in.committed, 0, sizeof(report_in.committed));
                memset(report_in.prepared, 0, sizeof(report_in.prepared));
                report_in.n_plans %= 9;
                fill_report_plans(&report_in);
                report_in.n_words = NODESET_WORDS;
                memset(report_in.set, 0xff, sizeof(report_in.set));
                memset(report_in.links, 0, sizeof(report_in.links));
                report_in.n_members = report_in.n_gone = 8;
                fill_report_members(&report_in);
                assert_true(report_encoded(&report_in) <= 4096);
                report_in.n_members = 0;
                assert_true(report_encoded(&report_in) <= 2048);
        }
}

TEST_ALONE(what_is_not_valid_is_not_said) {
        make_order(&order_in, ORDER_NEWGEN);
        order_in.source = order_in.world;
        assert_int_equal(peer_encode_order(&scratch, &order_in, bytes), -EINVAL);
        make_report(&report_in, ANSWER_ACK);
        report_in.stamp = 0;
        assert_int_equal(peer_encode_report(&scratch, &report_in, bytes), -EINVAL);
}

/* Appends fields that this version does not know: 1000, a number, and 1001, bytes. */
static size_t newer(size_t n) {
        static const uint8_t fields[] = { 0xc0, 0x3e, 0x07, 0xca, 0x3e, 0x02, 0x01, 0x02 };

        memcpy(bytes + n, fields, sizeof(fields));
        return n + sizeof(fields);
}

TEST_ALONE(a_newer_minor_version_is_understood) {
        make_order(&order_in, ORDER_CUT);
        memset(&order_out, 0, sizeof(order_out));
        assert_true(order_heard(bytes, newer(order_encoded(&order_in))));
        assert_same_order(&order_in, &order_out);
        make_report(&report_in, ANSWER_FROZEN);
        memset(&report_out, 0, sizeof(report_out));
        assert_true(report_heard(bytes, newer(report_encoded(&report_in))));
        assert_same_report(&report_in, &report_out);
}

/* ---- damaged bytes, and too little memory ---- */

/* Bytes that are cut off or turned over are refused, or valid: a machine asks for no more. */
static void damage(size_t n, bool (*heard)(const void *said, size_t n)) {
        for (size_t length = 0; length < n; length++) {
                uint8_t *part = malloc(length + 1); /* a sanitizer sees a read beyond it */

                assert_non_null(part);
                memcpy(part, bytes, length);
                heard(part, length);
                free(part);
        }
        for (size_t bit = 0; bit < n * 8; bit += 1 + below(7)) {
                bytes[bit / 8] ^= 1u << bit % 8;
                heard(bytes, n);
                bytes[bit / 8] ^= 1u << bit % 8;
        }
}

static uint32_t at_most(uint32_t most, uint32_t n) {
        return n > most ? most : n;
}

TEST_ALONE(damage_to_an_order_does_no_harm) {
        for (unsigned kind = 0; kind < N_ORDERS; kind++)
                for (unsigned round = 0; round < 4; round++) {
                        make_order(&order_in, kind);
                        order_in.n_members = at_most(3, order_in.n_members);
                        order_in.n_plans = at_most(3, order_in.n_plans);
                        order_in.n_tracks = at_most(TRACK_STEP + 3, order_in.n_tracks);
                        if (kind == ORDER_PLACES)
                                order_in.places.n_waiting = at_most(3, order_in.places.n_waiting);
                        damage(order_encoded(&order_in), order_heard);
                }
}

TEST_ALONE(damage_to_a_report_does_no_harm) {
        for (unsigned kind = ANSWER_REPORT; kind < N_ANSWERS; kind++)
                for (unsigned round = 0; round < 4; round++) {
                        make_report(&report_in, kind);
                        report_in.n_members = at_most(3, report_in.n_members);
                        report_in.n_gone = at_most(3, report_in.n_gone);
                        report_in.n_plans = at_most(3, report_in.n_plans);
                        report_in.n_tracks = at_most(TRACK_STEP + 3, report_in.n_tracks);
                        damage(report_encoded(&report_in), report_heard);
                }
}

TEST_ALONE(little_scratch_is_no_harm) {
        struct scratch little = { .buffer = memory };
        size_t n;

        make_order(&order_in, ORDER_NEWGEN);
        order_in.n_members = LIMIT_WORLD;
        fill_order_members(&order_in);
        n = order_encoded(&order_in);
        for (little.size = 0; little.size < 20000; little.size += 97) {
                assert_int_equal(peer_encode_order(&little, &order_in, again), -EMSGSIZE);
                assert_false(peer_decode_order(&little, bytes, n, &order_out, &why));
                assert_string_equal(why, "it is too complex");
        }
        make_report(&report_in, ANSWER_REPORT);
        report_in.n_members = LIMIT_SEATS;
        fill_report_members(&report_in);
        n = report_encoded(&report_in);
        for (little.size = 0; little.size < 20000; little.size += 97) {
                assert_int_equal(peer_encode_report(&little, &report_in, again), -EMSGSIZE);
                assert_false(peer_decode_report(&little, bytes, n, &report_out, &why));
                assert_string_equal(why, "it is too complex");
        }
}
