/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons as bytes: whatever is valid comes back as it was, whatever is not is refused, and
 * no bytes do harm.
 */
#include "tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "peer.pb-c.h"
#include "rendezvous/peer.h"
#include "rendezvous/post.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static uint8_t bytes[PEER_MAX], again[PEER_MAX];
static struct message in, out;
static const char *why;
static uint64_t seed = 1;

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

/* A member of the node that the message is about. */
static uint64_t member_for(const struct message *m) {
        return member_id(m->kind >= ANSWER_REPORT ? m->from : m->to, any(), any() | 1);
}

static uint32_t below(uint32_t n) {
        return (uint32_t)((noise() >> 32) * n >> 32);
}

static struct generation any_generation(void) {
        return (struct generation){ number(), 1 + (uint32_t)any() % LIMIT_GENERATION, (uint32_t)any() };
}

static struct tag any_tag(void) {
        return (struct tag){ any(), any(), (uint32_t)any(), number(), below(2), any() };
}

static struct message_member any_member(const struct message *m) {
        uint32_t most = 1 + below(LIMIT_WORLD);
        bool inside = m->world > 0 && below(2) == 0;

        return (struct message_member){
                .request = { .member = member_for(m),
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
                             .host = m->host,
                             .device = m->device,
                             .identity = any(),
                             .instance = any(),
                             .node = m->from },
                .tag = any_tag(),
                .rank = inside ? below(m->world) : (uint32_t)any(),
                .slot = below(LIMIT_WORLD),
                .id = any(),
                .in = inside,
                .behind = below(2),
                .leaving = below(2),
        };
}

/* Of 0 to `most`, often none and often all. */
static uint32_t some(uint32_t most) {
        uint32_t kind = below(4);

        return kind == 0 ? 0 : kind == 1 ? most : kind == 2 ? below(9) % (most + 1) : below(most + 1);
}

/* On some of them launches are agreed on. */
static void fill_lanes(struct message *m) {
        bool answers = m->kind >= ANSWER_REPORT;

        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;)
                m->seq[lane] = number();
        for (uint32_t lane = some(LIMIT_LANES); lane-- > 0;) {
                m->go[lane] = answers ? m->seq[lane] + below(3) : number();
                m->ready[lane] = answers ? m->go[lane] + below(LIMIT_WINDOW - 1) : 0;
        }
}

/* Those of a generation are said by rank. */
static void fill_members(struct message *m) {
        bool ranked = m->kind == ORDER_NEWGEN && m->n_members > 0;

        if (ranked && m->world < m->n_members)
                m->world = LIMIT_WORLD;
        for (uint32_t i = 0; i < m->n_members; i++) {
                m->member_of[i] = any_member(m);
                if (ranked)
                        m->member_of[i].rank = i * (m->world / m->n_members);
        }
}

static void fill_arrays(struct message *m) {
        m->n_tracks = some(LIMIT_TRACKS);
        for (uint32_t i = 0; i < m->n_tracks; i++) {
                m->mark[i] = number();
                m->committed[i] = m->kind < ANSWER_REPORT ? 0 : number();
                m->prepared[i] = m->kind < ANSWER_REPORT ? 0 : m->committed[i] + below(2);
        }
        m->n_words = some(NODESET_WORDS);
        for (uint32_t i = 0; i < m->n_words; i++) {
                m->set[i] = below(2) == 0 ? any() : UINT64_MAX;
                m->links[i] = below(2) == 0 ? 0 : any();
        }
}

static void fill_plans(struct message *m) {
        m->n_plans = some(LIMIT_PLANS);
        for (uint32_t i = 0; i < m->n_plans; i++)
                m->plan[i] = (struct message_plan){ .digest = any(),
                                                    .ordinal = (uint32_t)any(),
                                                    .track = below(2) ? TRACK_STEP + i : 0,
                                                    .open = below(2),
                                                    .voids = below(2),
                                                    .kept = below(2),
                                                    .before = number() };
        for (uint32_t i = 0; i < m->n_plans; i++)
                if (m->plan[i].open && track_is_step(m->plan[i].track) && m->plan[i].track < m->n_tracks) {
                        m->plan[i].unit =
                                m->kind < ANSWER_REPORT ? 1 + any() / 4 : m->committed[m->plan[i].track] + 1;
                        m->plan[i].turn = m->kind < ANSWER_REPORT || below(2) ? (any() >> 8) * 64 + i + 1 : 0;
                }
}

static void any_refusal(struct refusal *ret, uint32_t code) {
        *ret = (struct refusal){
                .code = code, .has_culprit = below(2), .rank = (uint32_t)any(), .pid = (int32_t)any()
        };
        memset(ret->text, 't', some(sizeof(ret->text) - 1));
        memset(ret->parameter, 'p', some(LIMIT_NAME));
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

/* What a report says of a plan. */
static void fill_note(struct message *m) {
        m->note = below(N_NOTES);
        m->ordinal = (uint32_t)any();
        if (m->note == NOTE_FACTS)
                any_facts(&m->about.facts);
        else if (m->note == NOTE_LACKS || m->note == NOTE_FAILED)
                any_refusal(&m->about.refusal, (uint32_t)any() | 1);
        else if (m->note == NOTE_LATE)
                m->about.waited = number() | 1;
}

static void fill_tail(struct message *m) {
        fill_plans(m);
        if (m->kind == ORDER_REFUSE) {
                any_refusal(&m->refusal, m->end != JOB_END_NONE ? (uint32_t)any() | 1 : 0);
                return;
        }
        if (m->kind == ORDER_REJECT) {
                m->ordinal = (uint32_t)any();
                any_refusal(&m->refusal, (uint32_t)any() | 1);
                return;
        }
        if (m->kind == ORDER_EXPLAIN) {
                m->note = below(2) ? NOTE_FACTS : NOTE_LACKS;
                m->ordinal = (uint32_t)any();
                m->index = (uint32_t)any();
                return;
        }
        if (m->kind == ORDER_PLACES) {
                m->places =
                        (struct message_places){ .places.grace = number(), .n_waiting = some(LIMIT_SEATS) };
                for (uint32_t i = 0; i < LIMIT_VACANT / 64; i++)
                        m->places.places.vacant[i] = any();
                for (uint32_t i = 0; i < m->places.n_waiting; i++)
                        m->places.waiting[i] = member_for(m);
                return;
        }
        m->n_members = some(m->kind == ORDER_NEWGEN ? LIMIT_WORLD : LIMIT_SEATS);
        fill_members(m);
        m->n_gone = some(LIMIT_LOCAL);
        for (uint32_t i = 0; i < m->n_gone; i++)
                m->gone[i] = (struct message_gone){ member_for(m), (uint32_t)any() };
        if (m->kind >= ANSWER_REPORT)
                fill_note(m);
}

/* A valid one of that kind, with something in every field. What it does not say is 0. */
static void make(struct message *m, enum message_kind kind) {
        uint32_t node = below(64);

        memset(m, 0, sizeof(*m));
        m->kind = kind;
        m->from = kind >= ANSWER_REPORT ? node : COORDINATOR;
        m->to = kind >= ANSWER_REPORT ? COORDINATOR : node;
        m->instance = any();
        m->term = number() | 1;
        m->round = number();
        m->stamp = number() | 1;
        m->generation = any_generation();
        m->comm = any_generation();
        fill_lanes(m);
        m->history = any_tag();
        m->host = (uint32_t)any();
        m->device = (uint32_t)any();
        m->engine = (uint32_t)any();
        m->origin = below(N_ORIGINS);
        m->running = below(2);
        m->wait = below(2);
        m->away = below(2);
        m->torn = below(2);
        m->cause = (uint32_t)any();
        m->world = 1 + below(LIMIT_WORLD);
        m->source = below(m->world);
        m->end = below(N_JOB_ENDS);
        m->loss = (struct membership_loss){ any(), (uint32_t)any(), (int32_t)any(), (uint32_t)any() };
        m->member = member_for(m);
        m->next_plan = (uint32_t)any();
        for (unsigned i = 0; i < sizeof(m->secret) && kind == ORDER_NEWGEN && below(2); i++)
                m->secret.byte[i] = (uint8_t)any();
        fill_arrays(m);
        m->n_words += m->n_words == 0;
        m->set[0] |= UINT64_C(1) << node;
        fill_tail(m);
        assert_true(message_valid(m));
}

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
#define M(name) FIELD(message_member, name)
static const struct field message_member_fields[] = { M(request), M(tag),    M(rank),    M(slot), M(id),
                                                      M(in),      M(behind), M(leaving), M(waits) };
#define P(name) FIELD(message_plan, name)
static const struct field message_plan_fields[] = { P(digest), P(unit),  P(turn), P(ordinal), P(track),
                                                    P(open),   P(voids), P(kept), P(before) };
#define G(name) FIELD(message_gone, name)
static const struct field message_gone_fields[] = { G(member), G(cause) };
#define F(name) FIELD(plan_facts, name)
static const struct field plan_facts_fields[] = { F(prefix), F(index),  F(n_params), F(n_buckets), F(reduce),
                                                  F(voids),  F(placed), F(name),     F(dtype),     F(dims),
                                                  F(bucket), F(shape),  F(bytes),    F(rank),      F(pid) };

static void tidy(void *what, size_t size, const struct field *field, unsigned n) {
        unsigned char neat[sizeof(struct plan_facts) + sizeof(struct message_member)] = { 0 };

        for (unsigned i = 0; i < n; i++)
                memcpy(neat + field[i].at, (unsigned char *)what + field[i].at, field[i].size);
        memcpy(what, neat, size);
}

#define TIDY(what, of)                                                                                       \
        tidy(what, sizeof(struct of), of##_fields, sizeof(of##_fields) / sizeof(of##_fields[0]))

static void message_tidy(struct message *m) {
        TIDY(&m->about.facts, plan_facts);
        TIDY(&m->history, tag);
        TIDY(&m->loss, membership_loss);
        for (uint32_t i = 0; i < m->n_members; i++) {
                TIDY(&m->member_of[i].tag, tag);
                TIDY(&m->member_of[i].request, membership_request);
                TIDY(&m->member_of[i], message_member);
        }
        for (uint32_t i = 0; i < m->n_plans; i++)
                TIDY(&m->plan[i], message_plan);
        for (uint32_t i = 0; i < m->n_gone; i++)
                TIDY(&m->gone[i], message_gone);
}

/* As far as both say something; words of nodes at the end that name none do not. */
static void assert_same(struct message *a, struct message *b) {
        assert_true(b->n_words <= a->n_words);
        assert_int_equal(nodeset_length(message_set(a)) > nodeset_length(message_links(a))
                                 ? nodeset_length(message_set(a))
                                 : nodeset_length(message_links(a)),
                         b->n_words);
        b->n_words = a->n_words;
        message_tidy(a);
        message_tidy(b);
        assert_memory_equal(a, b, sizeof(*a));
}

TEST_ALONE(each_message_comes_back_as_it_was) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = 0; kind < N_MESSAGE_KINDS; kind++) {
                        ssize_t n, m;

                        make(&in, kind);
                        n = peer_encode(&scratch, &in, bytes);
                        assert_true(n > 0);
                        memset(&out, 0, sizeof(out));
                        assert_true(peer_decode(&scratch, bytes, (size_t)n, &out, &why));
                        assert_null(why);
                        m = peer_encode(&scratch, &out, again);
                        assert_int_equal(m, n);
                        assert_memory_equal(bytes, again, (size_t)n);
                        assert_same(&in, &out);
                }
}

/* In no more room than it needs: what is said after the end of it is somebody else's. */
TEST_ALONE(a_copy_says_the_same_in_as_many_bytes_as_it_needs) {
        for (unsigned round = 0; round < 100; round++)
                for (unsigned kind = 0; kind < N_MESSAGE_KINDS; kind++) {
                        struct message *copy;
                        ssize_t n;

                        make(&in, kind);
                        n = peer_encode(&scratch, &in, bytes);
                        copy = test_malloc(message_bytes(&in));
                        memset(copy, 0xa5, message_bytes(&in));
                        message_copy(copy, &in);
                        assert_int_equal(peer_encode(&scratch, copy, again), n);
                        assert_memory_equal(bytes, again, (size_t)n);
                        test_free(copy);
                }
}

/* Every number as large as it can be. */
TEST_ALONE(the_largest_message_fits) {
        make(&in, ANSWER_REPORT);
        in.from = LIMIT_NODES - 1;
        in.term = in.round = in.stamp = LIMIT_NUMBER;
        in.n_members = LIMIT_SEATS;
        in.n_gone = LIMIT_LOCAL;
        in.n_tracks = LIMIT_TRACKS;
        in.n_plans = LIMIT_PLANS;
        for (uint32_t i = 0; i < LIMIT_PLANS; i++)
                in.plan[i] = (struct message_plan){ .digest = UINT64_MAX,
                                                    .unit = LIMIT_NUMBER,
                                                    .turn = LIMIT_NUMBER - i,
                                                    .ordinal = UINT32_MAX,
                                                    .track = TRACK_STEP + i,
                                                    .open = true,
                                                    .before = LIMIT_NUMBER };
        in.n_words = NODESET_WORDS;
        memset(in.set, 0xff, sizeof(in.set));
        memset(in.links, 0xff, sizeof(in.links));
        memset(in.gone, 0xff, sizeof(in.gone));
        for (uint32_t i = 0; i < LIMIT_TRACKS; i++) {
                in.mark[i] = LIMIT_NUMBER;
                in.committed[i] = LIMIT_NUMBER - 1;
                in.prepared[i] = LIMIT_NUMBER;
        }
        in.world = LIMIT_WORLD;
        in.generation = in.comm = (struct generation){ LIMIT_NUMBER, LIMIT_GENERATION, UINT32_MAX };
        for (uint32_t i = 0; i < LIMIT_SEATS; i++) {
                struct message_member *member = &in.member_of[i];

                memset(&member->tag, 0xff, sizeof(member->tag));
                member->tag.checkpoint = true;
                member->tag.step = LIMIT_NUMBER;
                member->request = (struct membership_request){
                        UINT64_MAX, INT32_MIN,       LIMIT_WORLD,     LIMIT_WORLD,  true,
                        true,       LIMIT_WORLD - 1, LIMIT_WORLD - 1, true,         true,
                        UINT64_MAX, LIMIT_NUMBER,    LIMIT_NUMBER,    LIMIT_NUMBER, in.host,
                        in.device,  UINT64_MAX,      UINT64_MAX,      in.from
                };
                member->rank = member->slot = LIMIT_WORLD - 1;
                member->id = UINT64_MAX;
                member->in = member->behind = member->leaving = true;
        }
        in.note = NOTE_FAILED;
        in.ordinal = UINT32_MAX;
        in.about.refusal = (struct refusal){
                .code = UINT32_MAX, .has_culprit = true, .rank = UINT32_MAX, .pid = INT32_MIN
        };
        memset(in.about.refusal.text, 't', sizeof(in.about.refusal.text) - 1);
        memset(in.about.refusal.parameter, 'p', LIMIT_NAME);
        assert_true(peer_encode(&scratch, &in, bytes) > 0);
        assert_true(peer_encode(&scratch, &in, bytes) < (ssize_t)PEER_MAX);
        peer_decode(&scratch, bytes, (size_t)peer_encode(&scratch, &in, bytes), &out, &why);
        assert_null(why);
        assert_int_equal(out.n_members, LIMIT_SEATS);
}

/* What is said to form a job with few members on each of many nodes, and to change it. */
TEST_ALONE(an_ordinary_message_is_small) {
        for (unsigned kind = 0; kind < N_MESSAGE_KINDS; kind++) {
                make(&in, kind);
                if (kind >= ORDER_REFUSE && kind < ANSWER_REPORT)
                        continue;
                in.note = NOTE_NONE;
                in.n_members = 8;
                in.n_gone = kind == ORDER_FREEZE ? 0 : 8;
                in.n_tracks = 3;
                in.n_plans %= 9;
                memset(in.mark, 0, sizeof(in.mark));
                memset(in.committed, 0, sizeof(in.committed));
                memset(in.prepared, 0, sizeof(in.prepared));
                fill_members(&in);
                in.n_words = NODESET_WORDS;
                memset(in.set, 0xff, sizeof(in.set));
                memset(in.links, 0, sizeof(in.links));
                assert_true(peer_encode(&scratch, &in, bytes) <=
                            (kind == ORDER_NEWGEN || kind >= ANSWER_REPORT ? 4096 : 2048 + 8 * 192));
                in.n_members = 0;
                assert_true(peer_encode(&scratch, &in, bytes) <= 2048);
        }
}

/* Whatever is cut off or turned over: refused, or a valid message, which is all that a machine asks for. */
TEST_ALONE(damage_does_no_harm) {
        for (unsigned kind = 0; kind < N_MESSAGE_KINDS; kind++)
                for (unsigned round = 0; round < 4; round++) {
                        size_t n;

                        make(&in, kind);
                        in.n_members = in.n_members > 3 ? 3 : in.n_members;
                        in.n_gone = in.n_gone > 3 ? 3 : in.n_gone;
                        in.n_plans = in.n_plans > 3 ? 3 : in.n_plans;
                        in.n_tracks = in.n_tracks > TRACK_STEP + 3 ? TRACK_STEP + 3 : in.n_tracks;
                        if (kind == ORDER_PLACES && in.places.n_waiting > 3)
                                in.places.n_waiting = 3;
                        n = (size_t)peer_encode(&scratch, &in, bytes);
                        for (size_t length = 0; length < n; length++) {
                                uint8_t *part = malloc(length + 1); /* a sanitizer sees a read beyond it */

                                assert_non_null(part);
                                memcpy(part, bytes, length);
                                if (peer_decode(&scratch, part, length, &out, &why))
                                        assert_true(message_valid(&out));
                                else
                                        assert_non_null(why);
                                free(part);
                        }
                        for (size_t bit = 0; bit < n * 8; bit += 1 + below(7)) {
                                bytes[bit / 8] ^= 1u << bit % 8;
                                if (peer_decode(&scratch, bytes, n, &out, &why))
                                        assert_true(message_valid(&out));
                                bytes[bit / 8] ^= 1u << bit % 8;
                        }
                }
}

TEST_ALONE(a_newer_minor_version_is_understood) {
        /* field 1000, a number; field 1001, bytes */
        static const uint8_t newer[] = { 0xc0, 0x3e, 0x07, 0xca, 0x3e, 0x02, 0x01, 0x02 };
        size_t n;

        make(&in, ANSWER_FROZEN);
        n = (size_t)peer_encode(&scratch, &in, bytes);
        memcpy(bytes + n, newer, sizeof(newer));
        memset(&out, 0, sizeof(out));
        assert_true(peer_decode(&scratch, bytes, n + sizeof(newer), &out, &why));
        assert_same(&in, &out);
}

static bool decodes(Peer__Message *message) {
        size_t n = peer__message__pack(message, bytes);

        return peer_decode(&scratch, bytes, n, &out, &why);
}

#define BAD(...) (bad = good, __VA_ARGS__, assert_false(decodes(&bad)), assert_non_null(why))

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

TEST_ALONE(what_could_wrap_or_is_of_another_node_is_refused) {
        Peer__Member member = PEER__MEMBER__INIT, *members = &member;
        Peer__Message good = PEER__MESSAGE__INIT, bad;
        Peer__Gone lost = PEER__GONE__INIT, *gone = &lost;
        uint64_t zero = 0;

        member.member = member.min_world = member.max_world = 1;
        good.major = PEER_MAJOR;
        good.kind = ANSWER_REPORT;
        good.stamp = 1;
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
        assert_true(decodes(&good));
        BAD(bad.from = 1); /* another node's member */
        BAD(member.timeout = LIMIT_NUMBER + 1);
        BAD(member.timeout = 0, member.last_call = UINT64_MAX);
        BAD(member.last_call = 0, member.grace = UINT64_MAX);
        BAD(member.grace = 0, member.tag_step = UINT64_MAX);
        member.tag_step = 0;
        good.n_member_of = 0;
        good.n_gone = 1;
        good.gone = &gone;
        assert_true(decodes(&good));
        BAD(bad.from = 1);
}

TEST_ALONE(a_secret_has_one_length) {
        Peer__Message good = PEER__MESSAGE__INIT, bad;
        uint8_t node = 1, secret[2 * sizeof(out.secret)];

        memset(secret, 7, sizeof(secret));
        good.major = PEER_MAJOR;
        good.kind = ORDER_NEWGEN;
        good.term = good.world = good.generation_number = good.comm_number = 1;
        good.set = (ProtobufCBinaryData){ 1, &node };
        assert_true(decodes(&good));
        assert_true(sha256_is_none(&out.secret));
        good.secret = (ProtobufCBinaryData){ sizeof(out.secret), secret };
        assert_true(decodes(&good));
        assert_memory_equal(out.secret.byte, secret, sizeof(out.secret));
        BAD(bad.secret.len--);
        BAD(bad.secret.len++);
        BAD(bad.secret.len = 1);
        BAD(bad.secret.len = sizeof(secret));
}

/* A node launches what it may, may what it is ready for, and is ready for a window. */
TEST_ALONE(what_cannot_be_launched_is_refused) {
        Peer__Message good = PEER__MESSAGE__INIT, bad;
        uint64_t seq = 4, go = 5, ready = 4 + LIMIT_WINDOW, numbers[LIMIT_LANES + 1] = { 0 };

        good.major = PEER_MAJOR;
        good.kind = ANSWER_REPORT;
        good.stamp = 1;
        good.n_seq = good.n_go = good.n_ready = 1;
        good.seq = &seq;
        good.go = &go;
        good.ready = &ready;
        assert_true(decodes(&good));
        assert_int_equal(out.go[0], 5);
        assert_int_equal(out.ready[0], 4 + LIMIT_WINDOW);
        BAD(ready = 5 + LIMIT_WINDOW);
        BAD(ready = 4);
        BAD(ready = 5, go = 3);
        BAD(go = 5, bad.n_ready = 0);
        BAD(bad.n_seq = 0, ready = 1 + LIMIT_WINDOW);
        BAD(bad.n_ready = LIMIT_LANES + 1, bad.ready = numbers);
        BAD(bad.n_go = LIMIT_LANES + 1, bad.go = numbers);
        BAD(seq = LIMIT_NUMBER, go = ready = LIMIT_NUMBER + 1);
        good.n_ready = good.n_go = 0; /* not agreed on */
        assert_true(decodes(&good));
        good.kind = ORDER_RUN;
        good.term = 1;
        good.n_go = 1;
        BAD(go = UINT64_MAX);
        go = 1;
        assert_true(decodes(&good));
        BAD(bad.n_ready = 1, ready = 1);
}

TEST_ALONE(what_breaks_a_limit_is_refused) {
        static uint64_t numbers[LIMIT_SEATS + 1];
        static uint8_t wide[NODESET_WORDS * 8 + 1];
        Peer__Member member = PEER__MEMBER__INIT, *members[LIMIT_SEATS + 1];
        Peer__Message good = PEER__MESSAGE__INIT, bad;
        Peer__Refusal refusal = PEER__REFUSAL__INIT;
        Peer__Places places = PEER__PLACES__INIT;
        Peer__Plan plan[2] = { PEER__PLAN__INIT, PEER__PLAN__INIT }, *plans[] = { &plan[0], &plan[1] };

        member.member = member.min_world = member.max_world = 1;
        for (unsigned i = 0; i < LIMIT_SEATS + 1; i++)
                members[i] = &member;
        good.major = PEER_MAJOR;
        good.kind = ANSWER_REPORT;
        good.stamp = 1;
        assert_true(decodes(&good));
        BAD(bad.major = PEER_MAJOR + 1);
        BAD(bad.major = 0);
        BAD(bad.kind = N_MESSAGE_KINDS);
        BAD(bad.stamp = 0);
        BAD(bad.from = LIMIT_NODES);
        BAD(bad.n_seq = LIMIT_LANES + 1, bad.seq = numbers);
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = LIMIT_TRACKS + 1,
            bad.mark = bad.committed = bad.prepared = numbers);
        BAD(bad.n_mark = bad.n_committed = 2, bad.n_prepared = 1,
            bad.mark = bad.committed = bad.prepared = numbers);
        BAD(bad.n_member_of = LIMIT_SEATS + 1, bad.member_of = members);
        BAD(bad.set.data = wide, bad.set.len = sizeof(wide));
        BAD(bad.links.data = wide, bad.links.len = sizeof(wide));
        BAD(bad.secret.data = wide, bad.secret.len = sizeof(out.secret)); /* only NEWGEN has one */
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
        assert_true(decodes(&good));
        BAD(plan[0].track = 2);
        BAD(plan[0].track = 0);
        plan[0].track = 1;
        BAD(plan[0].turn = plan[1].turn);
        BAD(plan[0].turn = LIMIT_NUMBER + 1);
        BAD(plan[0].turn = 4, plan[0].unit = 0);
        BAD(plan[0].unit = 2); /* which is not open there */
        plan[0].unit = 1;
        BAD(plan[0].open = false);
        plan[0].open = true;
        BAD(bad.n_mark = bad.n_committed = bad.n_prepared = 2);
        assert_true(decodes(&good));
        good.kind = ORDER_RUN;
        good.term = 1;
        good.n_committed = good.n_prepared = 0;
        assert_true(decodes(&good));
        BAD(plan[0].turn = 0);
        BAD(plan[0].turn = 4, plan[0].unit = LIMIT_NUMBER + 1);
        good.n_plan = 0;
        good.kind = ORDER_REFUSE;
        good.term = 1;
        good.refusal = &refusal;
        assert_true(decodes(&good)); /* a goodbye */
        BAD(bad.end = JOB_END_REFUSED);
        refusal.code = 1;
        BAD(bad.member = 1);
        good.end = JOB_END_REFUSED;
        assert_true(decodes(&good));
        BAD(bad.member = member_id(1, 0, 1));
        BAD(bad.n_member_of = 1, bad.member_of = members);
        refusal.text = (ProtobufCBinaryData){ 3, (uint8_t *)"a\0b" };
        BAD(bad.member = 1);
        refusal.text = (ProtobufCBinaryData){ 2, (uint8_t *)"\xc3\x28" };
        BAD(bad.member = 1);
        good.kind = ORDER_PLACES;
        good.places = &places;
        assert_true(decodes(&good));
        places.grace = UINT64_MAX;
        BAD(bad.member = 1);
        places.grace = 0;
        places.n_waiting = 1;
        places.waiting = &(uint64_t){ member_id(1, 0, 1) };
        BAD(bad.member = 1);
        places.n_waiting = LIMIT_SEATS + 1;
        places.waiting = numbers;
        BAD(bad.member = 1);
}

TEST_ALONE(what_is_not_valid_is_not_said) {
        make(&in, ORDER_NEWGEN);
        in.source = in.world;
        assert_int_equal(peer_encode(&scratch, &in, bytes), -EINVAL);
}

TEST_ALONE(little_scratch_is_no_harm) {
        struct scratch little = { .buffer = memory };
        ssize_t n;

        make(&in, ANSWER_REPORT);
        in.n_members = LIMIT_SEATS;
        for (uint32_t i = 0; i < LIMIT_SEATS; i++)
                in.member_of[i] = any_member(&in);
        n = peer_encode(&scratch, &in, bytes);
        assert_true(n > 0);
        for (little.size = 0; little.size < 20000; little.size += 97) {
                assert_int_equal(peer_encode(&little, &in, again), -EMSGSIZE);
                assert_false(peer_decode(&little, bytes, (size_t)n, &out, &why));
                assert_string_equal(why, "it is too complex");
        }
}
