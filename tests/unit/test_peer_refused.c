/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and reports that break a limit, or contradict themselves: the decoder refuses each, and says why. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "peer.pb-c.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/post.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static uint8_t bytes[PEER_MAX];
static struct order order_out;
static struct report report_out;

static bool order_decodes(Peer__Order *order) {
        size_t n = peer__order__pack(order, bytes);
        const char *why;
        bool decodes = peer_decode_order(&scratch, bytes, n, &order_out, &why);

        assert_true(decodes == (why == NULL));
        return decodes;
}

static bool report_decodes(Peer__Report *report) {
        size_t n = peer__report__pack(report, bytes);
        const char *why;
        bool decodes = peer_decode_report(&scratch, bytes, n, &report_out, &why);

        assert_true(decodes == (why == NULL));
        return decodes;
}

#define BAD_ORDER(...) (bad = good, __VA_ARGS__, assert_false(order_decodes(&bad)))
#define BAD_REPORT(...) (bad = good, __VA_ARGS__, assert_false(report_decodes(&bad)))

/* It says no more than it needs, to node 0. */
static Peer__Order plain_order(enum order_kind kind) {
        static uint8_t node = 1;
        Peer__Order order = PEER__ORDER__INIT;

        order.major = PEER_MAJOR;
        order.kind = kind;
        order.term = 1;
        if (kind != ORDER_NEWGEN)
                return order;
        order.world = order.generation_number = order.comm_number = 1;
        order.set = (ProtobufCBinaryData){ 1, &node };
        return order;
}

/* It says no more than it needs, from node 0. */
static Peer__Report plain_report(void) {
        Peer__Report report = PEER__REPORT__INIT;

        report.major = PEER_MAJOR;
        report.kind = ANSWER_REPORT;
        report.stamp = 1;
        return report;
}

TEST_ALONE(an_order_that_could_wrap_is_refused) {
        Peer__Order good = plain_order(ORDER_RUN), bad;

        assert_true(order_decodes(&good));
        BAD_ORDER(bad.term = LIMIT_NUMBER + 1);
        BAD_ORDER(bad.round = UINT64_MAX);
        BAD_ORDER(bad.stamp = LIMIT_NUMBER + 1);
        BAD_ORDER(bad.history_step = UINT64_MAX);
        BAD_ORDER(bad.generation_term = UINT64_MAX);
        BAD_ORDER(bad.generation_number = UINT32_MAX); /* no other one could follow */
        BAD_ORDER(bad.comm_term = LIMIT_NUMBER + 1);
        BAD_ORDER(bad.comm_number = LIMIT_GENERATION + 1);
        BAD_ORDER(bad.n_seq = 1, bad.seq = &(uint64_t){ UINT64_MAX });
        BAD_ORDER(bad.n_go = 1, bad.go = &(uint64_t){ UINT64_MAX });
        BAD_ORDER(bad.n_mark = 1, bad.mark = &(uint64_t){ UINT64_MAX });
}

TEST_ALONE(a_report_that_could_wrap_is_refused) {
        Peer__Report good = plain_report(), bad;
        uint64_t zero = 0, most = LIMIT_NUMBER, more = LIMIT_NUMBER + 1;

        assert_true(report_decodes(&good));
        BAD_REPORT(bad.term = LIMIT_NUMBER + 1);
        BAD_REPORT(bad.round = UINT64_MAX);
        BAD_REPORT(bad.stamp = LIMIT_NUMBER + 1);
        BAD_REPORT(bad.history_step = UINT64_MAX);
        BAD_REPORT(bad.generation_term = UINT64_MAX);
        BAD_REPORT(bad.generation_number = UINT32_MAX); /* no other one could follow */
        BAD_REPORT(bad.comm_term = LIMIT_NUMBER + 1);
        BAD_REPORT(bad.comm_number = LIMIT_GENERATION + 1);
        BAD_REPORT(bad.n_seq = 1, bad.seq = &(uint64_t){ UINT64_MAX });
        good.n_mark = good.n_committed = good.n_prepared = 1;
        good.mark = &zero;
        good.committed = good.prepared = &most;
        assert_true(report_decodes(&good));
        BAD_REPORT(bad.mark = &more);
        BAD_REPORT(bad.prepared = &more); /* no order could say it */
        BAD_REPORT(bad.committed = &more);
        BAD_REPORT(bad.committed = bad.prepared = &more);
        BAD_REPORT(bad.committed = &(uint64_t){ LIMIT_NUMBER - 2 }); /* two units would be prepared */
        BAD_REPORT(bad.prepared = &(uint64_t){ LIMIT_NUMBER - 1 });
}

TEST_ALONE(an_order_names_members_of_its_node) {
        Peer__OrderMember member[2] = { PEER__ORDER_MEMBER__INIT, PEER__ORDER_MEMBER__INIT };
        Peer__OrderMember *members[] = { &member[0], &member[1] };
        Peer__Order good = plain_order(ORDER_NEWGEN), bad;
        uint8_t nodes = 3;

        good.set.data = &nodes;
        good.world = 3;
        good.n_member_of = 2;
        good.member_of = members;
        member[0].member = 1;
        member[1].member = 2;
        member[1].rank = 2;
        assert_true(order_decodes(&good));
        BAD_ORDER(bad.to = 1);
        BAD_ORDER(member[0].member = 0);
        BAD_ORDER(member[0].member = member_id(1, 0, 1));
        member[0].member = 1;
        BAD_ORDER(member[1].rank = 3);
        BAD_ORDER(member[1].rank = 0); /* two have one rank */
        BAD_ORDER(member[0].rank = 1);
        BAD_ORDER(member[0].rank = 0, member[1].rank = 2, member[1].slot = LIMIT_WORLD);
        BAD_ORDER(member[1].slot = 0, member[1].tag_step = LIMIT_NUMBER + 1);
        member[1].tag_step = 0;
        assert_true(order_decodes(&good));
        good = plain_order(ORDER_RUN);
        good.member_of = members;
        for (unsigned kind = 0; kind < N_ORDERS; kind++)
                if (kind != ORDER_NEWGEN)
                        BAD_ORDER(bad.kind = kind, bad.n_member_of = 1);
}

TEST_ALONE(a_report_names_members_of_its_node) {
        Peer__Member member = PEER__MEMBER__INIT, *members = &member;
        Peer__Report good = plain_report(), bad;
        Peer__Gone lost = PEER__GONE__INIT, *gone = &lost;
        uint8_t node = 1;

        member.member = member.min_world = member.max_world = 1;
        good.n_member_of = 1;
        good.member_of = &members;
        assert_true(report_decodes(&good));
        BAD_REPORT(bad.from = 1); /* another node's member */
        BAD_REPORT(member.member = 0);
        BAD_REPORT(member.member = 1, member.timeout = LIMIT_NUMBER + 1);
        BAD_REPORT(member.timeout = 0, member.last_call = UINT64_MAX);
        BAD_REPORT(member.last_call = 0, member.grace = UINT64_MAX);
        BAD_REPORT(member.grace = 0, member.tag_step = UINT64_MAX);
        BAD_REPORT(member.tag_step = 0, member.min_world = 0);
        BAD_REPORT(member.min_world = 2);
        BAD_REPORT(member.min_world = 1, member.max_world = LIMIT_WORLD + 1);
        BAD_REPORT(member.max_world = 1, member.asked_rank = LIMIT_WORLD);
        BAD_REPORT(member.asked_rank = 0, member.asked_slot = LIMIT_WORLD);
        BAD_REPORT(member.asked_slot = 0, member.slot = LIMIT_WORLD);
        BAD_REPORT(member.slot = 0, member.in = true); /* there is no generation */
        good.world = good.generation_number = 1;
        good.set = (ProtobufCBinaryData){ 1, &node };
        assert_true(report_decodes(&good));
        BAD_REPORT(member.rank = 1);
        member.in = false;
        assert_true(report_decodes(&good));
        good.n_member_of = 0;
        good.n_gone = 1;
        good.gone = &gone;
        assert_true(report_decodes(&good));
        BAD_REPORT(bad.from = 1, node = 3);
        BAD_REPORT(lost.member = member_id(1, 0, 1));
}

TEST_ALONE(a_generation_that_is_none_is_refused) {
        Peer__Order good = plain_order(ORDER_NEWGEN), bad;

        assert_true(order_decodes(&good));
        BAD_ORDER(bad.world = 0);
        BAD_ORDER(bad.world = LIMIT_WORLD + 1);
        BAD_ORDER(bad.source = 1);
        BAD_ORDER(bad.generation_number = 0);
        BAD_ORDER(bad.comm_number = 0);
        BAD_ORDER(bad.to = 1); /* the generation has no such node */
        BAD_ORDER(bad.set.len = 0);
}

TEST_ALONE(a_report_of_a_generation_that_is_none_is_refused) {
        Peer__Report good = plain_report(), bad;
        uint8_t node = 1;

        good.world = good.generation_number = 1;
        good.set = (ProtobufCBinaryData){ 1, &node };
        assert_true(report_decodes(&good));
        BAD_REPORT(bad.world = LIMIT_WORLD + 1);
        BAD_REPORT(bad.generation_number = 0);
        BAD_REPORT(bad.from = 1); /* the generation has no such node */
        BAD_REPORT(bad.set.len = 0);
}

TEST_ALONE(a_secret_has_one_length) {
        Peer__Order good = plain_order(ORDER_NEWGEN), bad;
        uint8_t secret[2 * sizeof(order_out.secret)];

        memset(secret, 7, sizeof(secret));
        assert_true(order_decodes(&good));
        assert_true(sha256_is_none(&order_out.secret));
        good.secret = (ProtobufCBinaryData){ sizeof(order_out.secret), secret };
        assert_true(order_decodes(&good));
        assert_memory_equal(order_out.secret.byte, secret, sizeof(order_out.secret));
        BAD_ORDER(bad.secret.len--);
        BAD_ORDER(bad.secret.len++);
        BAD_ORDER(bad.secret.len = 1);
        BAD_ORDER(bad.secret.len = sizeof(secret));
        BAD_ORDER(bad.kind = ORDER_RUN); /* only NEWGEN has one */
}

/* A node launches what it may, may what it is ready for, and is ready for a window. */
TEST_ALONE(what_cannot_be_launched_is_refused) {
        Peer__Report good = plain_report(), bad;
        uint64_t seq = 4, go = 5, ready = 4 + LIMIT_WINDOW, numbers[LIMIT_LANES + 1] = { 0 };

        good.n_seq = good.n_go = good.n_ready = 1;
        good.seq = &seq;
        good.go = &go;
        good.ready = &ready;
        assert_true(report_decodes(&good));
        assert_int_equal(report_out.go[0], 5);
        assert_int_equal(report_out.ready[0], 4 + LIMIT_WINDOW);
        BAD_REPORT(ready = 5 + LIMIT_WINDOW);
        BAD_REPORT(ready = 4);
        BAD_REPORT(ready = 5, go = 3);
        BAD_REPORT(go = 5, bad.n_ready = 0);
        BAD_REPORT(bad.n_seq = 0, ready = 1 + LIMIT_WINDOW);
        BAD_REPORT(bad.n_ready = LIMIT_LANES + 1, bad.ready = numbers);
        BAD_REPORT(bad.n_go = LIMIT_LANES + 1, bad.go = numbers);
        BAD_REPORT(seq = LIMIT_NUMBER, go = ready = LIMIT_NUMBER + 1);
        good.n_ready = good.n_go = 0; /* the nodes do not agree on launches */
        assert_true(report_decodes(&good));
}

TEST_ALONE(an_order_that_breaks_a_limit_is_refused) {
        static uint64_t numbers[LIMIT_TRACKS + 1];
        static uint8_t wide[NODESET_WORDS * 8 + 1];
        Peer__OrderPlan plan = PEER__ORDER_PLAN__INIT, *plans[LIMIT_PLANS + 1];
        Peer__Order good = plain_order(ORDER_RUN), bad;

        for (unsigned i = 0; i < LIMIT_PLANS + 1; i++)
                plans[i] = &plan;
        assert_true(order_decodes(&good));
        BAD_ORDER(bad.major = PEER_MAJOR + 1);
        BAD_ORDER(bad.major = 0);
        BAD_ORDER(bad.kind = N_ORDERS);
        BAD_ORDER(bad.kind = UINT32_MAX);
        BAD_ORDER(bad.term = 0);
        BAD_ORDER(bad.to = LIMIT_NODES);
        BAD_ORDER(bad.world = LIMIT_WORLD + 1);
        BAD_ORDER(bad.end = N_JOB_ENDS);
        BAD_ORDER(bad.note = NOTE_FACTS); /* EXPLAIN asks for it */
        BAD_ORDER(bad.n_seq = LIMIT_LANES + 1, bad.seq = numbers);
        BAD_ORDER(bad.n_go = LIMIT_LANES + 1, bad.go = numbers);
        BAD_ORDER(bad.n_mark = LIMIT_TRACKS + 1, bad.mark = numbers);
        BAD_ORDER(bad.n_plan = LIMIT_PLANS + 1, bad.plan = plans);
        BAD_ORDER(bad.set.data = wide, bad.set.len = sizeof(wide));
        good.n_seq = good.n_go = LIMIT_LANES;
        good.n_mark = LIMIT_TRACKS;
        good.seq = good.go = good.mark = numbers;
        good.n_plan = LIMIT_PLANS;
        good.plan = plans;
        good.set = (ProtobufCBinaryData){ sizeof(wide) - 1, wide };
        assert_true(order_decodes(&good));
}

TEST_ALONE(a_report_that_breaks_a_limit_is_refused) {
        static uint64_t numbers[LIMIT_TRACKS + 1];
        static uint8_t wide[NODESET_WORDS * 8 + 1];
        Peer__Member member = PEER__MEMBER__INIT, *members[LIMIT_SEATS + 1];
        Peer__Gone lost = PEER__GONE__INIT, *gone[LIMIT_LOCAL + 1];
        Peer__ReportPlan plan = PEER__REPORT_PLAN__INIT, *plans[LIMIT_PLANS + 1];
        Peer__Report good = plain_report(), bad;

        member.member = member.min_world = member.max_world = 1;
        for (unsigned i = 0; i < LIMIT_SEATS + 1; i++)
                members[i] = &member;
        for (unsigned i = 0; i < LIMIT_LOCAL + 1; i++)
                gone[i] = &lost;
        for (unsigned i = 0; i < LIMIT_PLANS + 1; i++)
                plans[i] = &plan;
        assert_true(report_decodes(&good));
        BAD_REPORT(bad.major = PEER_MAJOR + 1);
        BAD_REPORT(bad.major = 0);
        BAD_REPORT(bad.kind = ANSWER_NONE);
        BAD_REPORT(bad.kind = N_ANSWERS);
        BAD_REPORT(bad.kind = UINT32_MAX);
        BAD_REPORT(bad.stamp = 0);
        BAD_REPORT(bad.from = LIMIT_NODES);
        BAD_REPORT(bad.end = N_JOB_ENDS);
        BAD_REPORT(bad.n_seq = LIMIT_LANES + 1, bad.seq = numbers);
        BAD_REPORT(bad.n_mark = bad.n_committed = bad.n_prepared = LIMIT_TRACKS + 1,
                   bad.mark = bad.committed = bad.prepared = numbers);
        BAD_REPORT(bad.n_mark = bad.n_committed = 2, bad.n_prepared = 1,
                   bad.mark = bad.committed = bad.prepared = numbers);
        BAD_REPORT(bad.n_mark = bad.n_prepared = 2, bad.n_committed = 1,
                   bad.mark = bad.committed = bad.prepared = numbers);
        BAD_REPORT(bad.n_member_of = LIMIT_SEATS + 1, bad.member_of = members);
        BAD_REPORT(bad.n_gone = LIMIT_LOCAL + 1, bad.gone = gone);
        BAD_REPORT(bad.n_plan = LIMIT_PLANS + 1, bad.plan = plans);
        BAD_REPORT(bad.set.data = wide, bad.set.len = sizeof(wide));
        BAD_REPORT(bad.links.data = wide, bad.links.len = sizeof(wide));
        good.n_seq = LIMIT_LANES;
        good.n_mark = good.n_committed = good.n_prepared = LIMIT_TRACKS;
        good.seq = good.mark = good.committed = good.prepared = numbers;
        good.n_member_of = LIMIT_SEATS;
        good.member_of = members;
        good.n_gone = LIMIT_LOCAL;
        good.gone = gone;
        good.n_plan = LIMIT_PLANS;
        good.plan = plans;
        good.set = good.links = (ProtobufCBinaryData){ sizeof(wide) - 1, wide };
        assert_true(report_decodes(&good));
}

TEST_ALONE(plans_of_an_order_that_contradict_each_other_are_refused) {
        static uint64_t numbers[3];
        Peer__OrderPlan plan[2] = { PEER__ORDER_PLAN__INIT, PEER__ORDER_PLAN__INIT };
        Peer__OrderPlan *plans[] = { &plan[0], &plan[1] };
        Peer__Order good = plain_order(ORDER_RUN), bad;

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
        assert_true(order_decodes(&good));
        BAD_ORDER(plan[0].track = 2);
        BAD_ORDER(plan[0].track = LIMIT_TRACKS);
        BAD_ORDER(plan[0].track = 0);
        BAD_ORDER(plan[0].unit = plan[0].turn = 0, plan[0].track = LIMIT_TRACKS);
        BAD_ORDER(plan[0].unit = 1, plan[0].track = 1, plan[0].turn = plan[1].turn);
        BAD_ORDER(plan[0].turn = LIMIT_NUMBER + 1);
        BAD_ORDER(plan[0].turn = 0);
        BAD_ORDER(plan[0].turn = 4, plan[0].unit = 0);
        BAD_ORDER(plan[0].unit = LIMIT_NUMBER + 1);
        BAD_ORDER(plan[0].unit = 1, plan[0].before = LIMIT_NUMBER + 1);
        BAD_ORDER(plan[0].before = 0, plan[0].open = false);
        BAD_ORDER(plan[0].open = true, bad.n_mark = 2);
        assert_true(order_decodes(&good));
        plan[0].unit = 2; /* a node may be one behind */
        assert_true(order_decodes(&good));
}

TEST_ALONE(plans_of_a_report_that_contradict_each_other_are_refused) {
        static uint64_t numbers[3];
        Peer__ReportPlan plan[2] = { PEER__REPORT_PLAN__INIT, PEER__REPORT_PLAN__INIT };
        Peer__ReportPlan *plans[] = { &plan[0], &plan[1] };
        Peer__Report good = plain_report(), bad;

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
        assert_true(report_decodes(&good));
        BAD_REPORT(plan[0].track = 2);
        BAD_REPORT(plan[0].track = LIMIT_TRACKS);
        BAD_REPORT(plan[0].track = 0);
        BAD_REPORT(plan[0].unit = plan[0].turn = 0, plan[0].track = LIMIT_TRACKS);
        BAD_REPORT(plan[0].unit = 1, plan[0].track = 1, plan[0].turn = plan[1].turn);
        BAD_REPORT(plan[0].turn = LIMIT_NUMBER + 1);
        BAD_REPORT(plan[0].turn = 4, plan[0].unit = 0);
        BAD_REPORT(plan[0].unit = 2); /* another one is open there */
        BAD_REPORT(plan[0].unit = 1, plan[0].before = LIMIT_NUMBER + 1);
        BAD_REPORT(plan[0].before = 0, plan[0].open = false);
        BAD_REPORT(plan[0].open = true, bad.n_mark = bad.n_committed = bad.n_prepared = 2);
        assert_true(report_decodes(&good));
        plan[0].turn = plan[1].turn = 0; /* the node has not heard of any */
        assert_true(report_decodes(&good));
}

TEST_ALONE(a_refusal_that_makes_no_sense_is_refused) {
        Peer__Refusal refusal = PEER__REFUSAL__INIT;
        Peer__Order good = plain_order(ORDER_REFUSE), bad;
        char name[LIMIT_NAME + 2] = "";
        uint8_t text[sizeof(order_out.refusal.text)];

        good.refusal = &refusal;
        assert_true(order_decodes(&good)); /* a goodbye */
        BAD_ORDER(bad.end = JOB_END_REFUSED);
        BAD_ORDER(bad.kind = ORDER_REJECT);
        refusal.code = 1;
        BAD_ORDER(bad.end = JOB_END_NONE);
        good.end = JOB_END_REFUSED;
        assert_true(order_decodes(&good));
        BAD_ORDER(bad.refusal = NULL);
        BAD_ORDER(bad.member = member_id(1, 0, 1));
        for (unsigned i = 0; i < 2; i++, good.kind = ORDER_REJECT) {
                refusal.text = (ProtobufCBinaryData){ 3, (uint8_t *)"a b" };
                assert_true(order_decodes(&good));
                BAD_ORDER(refusal.text.data = (uint8_t *)"a\0b");
                BAD_ORDER(refusal.text = (ProtobufCBinaryData){ 2, (uint8_t *)"\xc3\x28" });
                memset(text, 't', sizeof(text));
                BAD_ORDER(refusal.text = (ProtobufCBinaryData){ sizeof(text), text });
                refusal.text.len--;
                assert_true(order_decodes(&good));
                memset(name, 'n', LIMIT_NAME + 1);
                BAD_ORDER(refusal.parameter = name);
                name[LIMIT_NAME] = 0;
                assert_true(order_decodes(&good));
                BAD_ORDER(refusal.parameter = (char *)"a\x1b");
                refusal.parameter = (char *)"";
        }
}

TEST_ALONE(places_that_make_no_sense_are_refused) {
        static uint64_t numbers[LIMIT_SEATS + 1];
        uint8_t wide[LIMIT_VACANT / 8 + 1] = { 0 };
        Peer__Places places = PEER__PLACES__INIT;
        Peer__Order good = plain_order(ORDER_PLACES), bad;

        assert_true(order_decodes(&good));
        good.places = &places;
        places.n_waiting = LIMIT_SEATS;
        places.waiting = numbers;
        places.vacant = (ProtobufCBinaryData){ sizeof(wide) - 1, wide };
        assert_true(order_decodes(&good));
        BAD_ORDER(bad.to = 1);
        BAD_ORDER(places.n_waiting++);
        BAD_ORDER(places.n_waiting = 1, places.waiting = &(uint64_t){ member_id(1, 0, 1) });
        BAD_ORDER(places.waiting = numbers, places.vacant.len++);
        BAD_ORDER(places.vacant.len--, places.grace = LIMIT_NUMBER + 1);
        places.grace--;
        assert_true(order_decodes(&good));
}

TEST_ALONE(an_order_asks_for_what_a_node_can_say) {
        Peer__Order good = plain_order(ORDER_EXPLAIN), bad;

        good.note = NOTE_FACTS;
        assert_true(order_decodes(&good));
        BAD_ORDER(bad.note = NOTE_NONE);
        BAD_ORDER(bad.note = NOTE_LATE);
        BAD_ORDER(bad.note = NOTE_FAILED);
        BAD_ORDER(bad.note = N_NOTES);
        good.note = NOTE_LACKS;
        assert_true(order_decodes(&good));
}

TEST_ALONE(a_note_that_makes_no_sense_is_refused) {
        static uint64_t shape[LIMIT_DIMS + 1];
        Peer__Facts facts = PEER__FACTS__INIT;
        Peer__Refusal refusal = PEER__REFUSAL__INIT;
        Peer__About about = PEER__ABOUT__INIT;
        Peer__Report good = plain_report(), bad;

        good.about = &about;
        about.facts = &facts;
        about.refusal = &refusal;
        BAD_REPORT(bad.note = N_NOTES);
        good.note = NOTE_LATE;
        BAD_REPORT(bad.about = NULL);
        BAD_REPORT(about.waited = 0);
        BAD_REPORT(about.waited = LIMIT_NUMBER + 1);
        about.waited = LIMIT_NUMBER;
        assert_true(report_decodes(&good));
        good.note = NOTE_FAILED;
        BAD_REPORT(bad.about = NULL);
        BAD_REPORT(refusal.code = 0);
        refusal.code = 1;
        assert_true(report_decodes(&good));
        refusal.text = (ProtobufCBinaryData){ 2, (uint8_t *)"\xc3\x28" };
        BAD_REPORT(bad.note = NOTE_FAILED);
        BAD_REPORT(bad.note = NOTE_LACKS);
        good.note = NOTE_FACTS;
        facts.params = facts.index = 1;
        facts.shape = shape;
        assert_true(report_decodes(&good));
        BAD_REPORT(facts.n_shape = LIMIT_DIMS + 1);
        BAD_REPORT(facts.n_shape = 0, facts.name = (char *)"a\x1b");
        BAD_REPORT(facts.name = (char *)"", facts.params = LIMIT_PARAMS + 1);
        BAD_REPORT(facts.params = 1, facts.reduce = WIRE__REDUCE__PROD + 1);
}

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
        BAD_TIMES(bad.death = 4); /* a sleep would be no longer than its part that counts */
        BAD_TIMES(bad.abandon = 5);
        BAD_TIMES(bad.abandon = UINT64_MAX);
        BAD_TIMES(bad.drain = 0);
        BAD_TIMES(bad.build = 0);
}
