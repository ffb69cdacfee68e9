/* SPDX-License-Identifier: Apache-2.0 */
/* Places on several hosts, members that come back as somebody newer, a membership known only from reports,
 * and leases. */
#include "unit.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/membership.h"
#include "rendezvous/tenure.h"

#define GRACE 1000

static struct seat room[LIMIT_LOCAL + 1];
static struct membership m = { .seat = room, .most = LIMIT_LOCAL };
static struct refusal refusal;
static uint64_t gone;

static struct membership_request on(uint64_t member, uint32_t host, uint32_t device) {
        return (struct membership_request){ .member = member,
                                            .pid = (int32_t)member + 100,
                                            .min_world = 2,
                                            .max_world = 6,
                                            .grace = GRACE,
                                            .adapts = true,
                                            .host = host,
                                            .device = device };
}

static struct membership_request who(uint64_t member, uint64_t identity, uint64_t instance) {
        struct membership_request r = on(member, 0, 0);

        r.identity = identity;
        r.instance = instance;
        return r;
}

static int join(struct membership_request r, uint64_t now) {
        return membership_join(&m, &r, now, &refusal);
}

static enum membership_event tick(uint64_t now) {
        return membership_tick(&m, now, &gone, &refusal);
}

static void ranks_go_by_host_device_and_slot(void **state) {
        static const struct {
                uint64_t id;
                uint32_t host, device, slot, rank;
        } table[] = {
                { 1, 1, 0, 0, 3 }, { 2, 0, 1, 1, 1 }, { 3, 0, 1, 2, 2 }, { 4, 0, 0, 5, 0 }, { 5, 2, 0, 0, 4 },
        };

        membership_init(&m, "j", 0);
        for (unsigned i = 0; i < 5; i++) {
                struct membership_request r = on(table[i].id, table[i].host, table[i].device);

                r.has_slot = true;
                r.slot = table[i].slot;
                assert_int_equal(join(r, 0), 0); /* the same local rank on another host is another one */
        }
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(membership_find(&m, table[i].id)->rank, table[i].rank);
}

static void slots_are_numbered_on_each_host(void **state) {
        membership_init(&m, "j", 0);
        for (uint64_t id = 1; id <= 4; id++)
                assert_int_equal(join(on(id, id % 2, 0), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        for (uint64_t id = 1; id <= 4; id++)
                assert_int_equal(membership_find(&m, id)->slot, (id - 1) / 2);
}

static void a_newcomer_stands_with_its_device(void **state) {
        membership_init(&m, "j", 0);
        for (uint64_t id = 1; id <= 4; id++)
                assert_int_equal(join(on(id, id > 2, 0), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(join(on(5, 0, 0), 1), 0);
        assert_non_null(membership_find(&m, 5));
        m.boundary = true;
        assert_int_equal(tick(2), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 5)->rank, 2);
        assert_int_equal(membership_find(&m, 5)->slot, 2);
        assert_int_equal(membership_find(&m, 3)->rank, 3);
        assert_int_equal(membership_find(&m, 4)->rank, 4);
}

static void form_with_identities(void) {
        membership_init(&m, "j", 0);
        for (uint64_t id = 1; id <= 3; id++)
                assert_int_equal(join(who(id, 10 + id, 1), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
}

static void a_newer_process_takes_the_rank_and_fences_the_older(void **state) {
        form_with_identities();
        assert_int_equal(join(who(4, 12, 2), 5), 0);
        assert_int_equal(m.fenced, 2);
        assert_int_equal(m.state, MEMBERSHIP_REPLACING);
        assert_int_equal(m.loss.rank, 1);
        assert_int_equal(m.loss.cause, WIRE__CAUSE__SUPERSEDED);
        m.busy = false;
        assert_int_equal(tick(6), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 1);
        assert_int_equal(membership_find(&m, 2)->state, SEAT_FENCED);
        assert_int_equal(join(who(5, 13, 1), 7),
                         WIRE__CODE__STALE); /* not newer than the one that is there */
        assert_int_equal(m.fenced, 0);
        assert_int_equal(refusal.pid, 103);
        assert_int_equal(m.state, MEMBERSHIP_FORMED);
}

static void while_forming_the_newer_one_just_comes_instead(void **state) {
        membership_init(&m, "j", 0);
        m.last_call = UINT64_MAX;
        assert_int_equal(join(who(1, 11, 1), 0), 0);
        assert_int_equal(join(who(2, 11, 2), 0), 0);
        assert_int_equal(m.fenced, 1);
        assert_int_equal(m.n, 1);
        assert_int_equal(m.seat[0].request.member, 2);
}

static void who_comes_back_gets_its_own_place(void **state) {
        form_with_identities();
        membership_remove(&m, 1, WIRE__CAUSE__EXITED, 10);
        membership_remove(&m, 3, WIRE__CAUSE__EXITED, 10);
        assert_int_equal(join(who(4, 13, 2), 20), 0);
        assert_int_equal(join(who(5, 11, 2), 20), 0);
        m.busy = false;
        assert_int_equal(tick(21), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 2);
        assert_int_equal(membership_find(&m, 5)->rank, 0);
}

static void claim(struct membership_request r, uint64_t id, uint32_t rank) {
        struct seat *seat = membership_note(&m, &r);

        seat->id = id;
        seat->rank = rank;
        seat_set_state(seat, SEAT_CLAIMS);
}

static void a_membership_is_restored_from_reports(void **state) {
        membership_init(&m, "j", 0);
        claim(on(9, 1, 0), 9, 2);
        claim(on(7, 0, 0), 7, 0);
        membership_restore(&m, 4, 3, 100);
        assert_int_equal(m.state, MEMBERSHIP_REPLACING);
        assert_int_equal(membership_vacant(&m), 1);
        assert_int_equal(tick(100 + GRACE), MEMBERSHIP_NOTHING); /* nobody has let go yet */
        m.busy = false;
        assert_int_equal(tick(100 + GRACE - 1), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(100 + GRACE), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.generation, 5);
        assert_int_equal(membership_find(&m, 9)->rank, 1);
        membership_init(&m, "j", 0);
        claim(on(7, 0, 0), 7, 0);
        claim(on(9, 1, 0), 9, 1);
        membership_restore(&m, 8, 2, 0);
        assert_int_equal(m.state, MEMBERSHIP_FORMED);
}

/* Those that were new stay, and ask; so does one whose claim cannot be. */
static void the_others_still_ask(void **state) {
        membership_init(&m, "j", 0);
        claim(on(7, 0, 0), 7, 2);
        claim(on(8, 0, 0), 8, 3); /* in a world of 3 */
        claim(on(9, 0, 0), 9, 2);
        claim(on(10, 0, 0), 10, 1);
        claim(on(11, 0, 0), 11, 1);
        membership_note(&m, &(struct membership_request){ .member = 12 });
        membership_restore(&m, 4, 3, 100);
        assert_int_equal(m.n, 3);
        assert_int_equal(m.n_others, 4);
        assert_int_equal(membership_vacant(&m), 1);
        assert_int_equal(m.seat[0].state, SEAT_LOST);
        assert_int_equal(m.seat[1].state, SEAT_HELD);
        assert_int_equal(m.seat[2].state, SEAT_HELD);
        for (uint32_t i = 3; i < 7; i++)
                assert_int_equal(m.seat[i].state, SEAT_ASKS);
        for (uint64_t id = 7; id <= 12; id++)
                assert_non_null(membership_find(&m, id));
}

/* More of them than there is room for are forgotten: their nodes report them again. */
static void what_has_no_room_is_forgotten(void **state) {
        struct seat few[4];
        struct membership small = { .seat = few, .most = 3 };

        membership_init(&small, "j", 0);
        for (uint64_t id = 1; id <= 4; id++)
                assert_non_null(membership_note(&small, &(struct membership_request){ .member = id }));
        assert_null(membership_note(&small, &(struct membership_request){ .member = 5 }));
        assert_ptr_equal(membership_note(&small, &(struct membership_request){ .member = 4 }),
                         membership_find(&small, 4));
        few[0].rank = 1;
        few[0].request = on(4, 0, 0);
        seat_set_state(&few[0], SEAT_CLAIMS);
        membership_restore(&small, 4, 3, 100);
        assert_int_equal(small.n, 3);
        assert_int_equal(small.n_others, 1);
        assert_int_equal(membership_vacant(&small), 2);
        assert_int_equal(membership_find(&small, 4)->rank, 1);
}

/* On 40 hosts, some of them named out of turn. */
static void a_world_is_larger_than_what_one_daemon_serves(void **state) {
        enum { WORLD = 40 * 25 };
        static struct seat seats[WORLD + 1];
        static struct membership large;

        large = (struct membership){ .seat = seats, .most = WORLD };
        membership_init(&large, "j", 0);
        for (uint32_t i = 0; i < WORLD; i++) {
                struct membership_request r = on(1 + i, i * 7 % 40, 0);

                r.min_world = r.max_world = WORLD;
                r.has_rank = true;
                r.rank = (i * 13 + 5) % WORLD;
                assert_int_equal(membership_join(&large, &r, 0, &refusal), 0);
        }
        assert_int_equal(membership_tick(&large, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        for (uint32_t i = 0; i < WORLD; i++) {
                const struct seat *seat = membership_find(&large, 1 + i);

                assert_int_equal(seat->rank, (i * 13 + 5) % WORLD);
                assert_true(seat->slot < 25);
                assert_ptr_equal(seat, &seats[seat->rank]);
                assert_int_equal(seat->id, 1 + seat->rank);
        }
        assert_true(membership_remove(&large, 900, WIRE__CAUSE__EXITED, 1));
        assert_int_equal(large.loss.rank, (899 * 13 + 5) % WORLD);
}

/* Nodes count their members each for itself, and anew in each run. */
static void ids_of_members_differ_and_those_of_places_are_small(void **state) {
        const uint64_t a = member_id(0, 1, 7), b = member_id(1, 1, 7), again = member_id(1, 2, 7);

        assert_true(a != b && a != again && b != again);
        assert_true(member_id_count(a) == 7 && member_id_count(b) == 7 && member_id_count(again) == 7);
        assert_true(member_id(LIMIT_NODES - 1, 1, 1) != member_id(LIMIT_NODES - 2, 1, 1));
        membership_init(&m, "j", 0);
        assert_int_equal(join(on(a, 0, 0), 0), 0);
        assert_int_equal(join(on(b, 1, 0), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, a)->id, 1);
        assert_int_equal(membership_find(&m, b)->id, 2);
        assert_true(membership_remove(&m, b, WIRE__CAUSE__RESTARTED, 1));
        m.busy = false;
        assert_int_equal(join(on(again, 1, 0), 2), 0);
        assert_int_equal(tick(2), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, again)->id, 2);
        assert_int_equal(join(on(b, 2, 0), 3), 0);
        m.boundary = true;
        assert_int_equal(tick(3), MEMBERSHIP_HAS_FORMED);
        m.boundary = false;
        assert_int_equal(membership_find(&m, b)->id, 3);
}

/* Three daemons that hand messages to each other at once, as far as they are not cut off. */
static struct tenure tenure[3];
static uint64_t words[3][TENURE_SETS];
static unsigned cut_off;
static const struct machine_times times = { .heartbeat = 10, .lease = 100 };

static uint64_t now;
static struct effects effects;

static void carry(const struct effect *effect) {
        const struct message *message = effect->message;

        if ((cut_off >> message->from & 1) == 0 && (cut_off >> message->to & 1) == 0)
                tenure_receive(&tenure[message->to], now, message);
}

static void start_tenures(void) {
        const struct outlet out = { .effects = &effects };

        if (effects.room == NULL)
                assert_int_equal(effects_init(&effects, EFFECTS_ROOM), 0);
        now = 1000;
        cut_off = 0;
        for (uint32_t i = 0; i < 3; i++) {
                tenure[i] = (struct tenure){ 0 };
                tenure_move(&tenure[i], words[i], 3);
                tenure_init(&tenure[i], i, 3, &times, 1, now, &out);
        }
}

static int serving(void) {
        int found = -1;

        for (int i = 0; i < 3; i++)
                if (tenure[i].serving) {
                        assert_int_equal(found, -1);
                        found = i;
                }
        return found;
}

static void pass(unsigned ticks) {
        for (unsigned i = 0; i < ticks; i++) {
                now += 5;
                for (unsigned k = 0; k < 3; k++) {
                        tenure_tick(&tenure[k], now);
                        effects_drain(&effects, carry);
                }
        }
}

static void one_of_three_serves_as_long_as_it_reaches_a_majority(void **state) {
        uint64_t term;

        start_tenures();
        pass(60);
        assert_int_equal(serving(), 0);
        term = tenure[0].term;
        cut_off = 1u << 2;
        pass(100);
        assert_int_equal(serving(), 0); /* two of three are enough */
        assert_int_equal(tenure[0].term, term);
        cut_off = 1u << 0;
        pass(100);
        assert_int_equal(serving(), 1); /* and never two at once: serving() looks */
        assert_true(tenure[1].term > term);
        cut_off = 7;
        pass(100);
        assert_int_equal(serving(), -1);
}

static void who_was_cut_off_disturbs_nobody(void **state) {
        uint64_t term;

        start_tenures();
        pass(60);
        term = tenure[0].term;
        cut_off = 1u << 2;
        pass(200); /* it asks for higher and higher terms meanwhile */
        assert_true(tenure[2].term > term);
        cut_off = 0;
        pass(200);
        assert_int_equal(serving(), 0);
        assert_int_equal(tenure[0].term, term);
}

static void terms_name_their_candidate(void **state) {
        start_tenures();
        cut_off = 7;
        pass(200);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(tenure[i].term & 0xff, i);
}

static void a_majority_remembers_the_latest_generation(void **state) {
        struct generation generation;

        start_tenures();
        pass(60);
        generation = (struct generation){ tenure[0].term, 5, 1 };
        cut_off = 1u << 1 | 1u << 2;
        tenure_put(&tenure[0], generation, (struct nodeset){ (uint64_t[]){ 3 }, 1 }, now);
        effects_drain(&effects, carry);
        assert_false(tenure_has_put(&tenure[0]));
        cut_off = 1u << 2;
        pass(4);
        assert_true(tenure_has_put(&tenure[0]));
        cut_off = 1u << 0;
        pass(100);
        assert_int_equal(serving(), 1);
        assert_true(generation_equal(tenure[1].record, generation));
        assert_int_equal(tenure[1].record_set.word[0], 3);
}

/* The answer of a voter to what this candidate has asked at that time. */
static struct message granted(uint32_t voter, uint64_t stamp) {
        struct message grant;

        message_clear(&grant);
        grant.kind = LEASE_GRANT;
        grant.from = voter;
        grant.to = 0;
        grant.term = tenure[0].term;
        grant.instance = tenure[0].floor;
        grant.stamp = stamp;
        return grant;
}

static void an_older_grant_sets_no_lease_back(void **state) {
        struct message newer, older;

        start_tenures();
        pass(60);
        cut_off = 1u << 0; /* only what the test hands over arrives */
        newer = granted(1, now);
        older = granted(1, now - times.heartbeat);
        tenure_receive(&tenure[0], now, &newer);
        newer.from = older.from = 2;
        tenure_receive(&tenure[0], now, &newer);
        assert_int_equal(tenure_until(&tenure[0]), now + times.lease);
        tenure_receive(&tenure[0], now, &older);
        older.from = 1;
        tenure_receive(&tenure[0], now, &older);
        assert_int_equal(tenure_until(&tenure[0]), now + times.lease);
}

/* Others have a lease of it that is not over for them, however late it has become here. */
static void a_promise_lasts_over_a_sleep(void **state) {
        uint64_t since;

        start_tenures();
        pass(60);
        assert_int_equal(serving(), 0);
        since = now;
        now += 10 * times.lease;
        for (uint32_t voter = 1; voter < 3; voter++) {
                tenure_slept(&tenure[voter], since, now);
                assert_int_equal(tenure[voter].voter.until, now + times.lease);
        }
        cut_off = 1u << 0;
        pass(times.lease / 5 - 1);
        assert_false(tenure[1].serving || tenure[2].serving);
        pass(100);
        assert_true(tenure[1].serving);
}

static void a_promise_that_was_over_before_a_sleep_stays_over(void **state) {
        uint64_t over;

        start_tenures();
        over = tenure[2].voter.until;
        now = over + 1;
        tenure_slept(&tenure[2], now, now + 10 * times.lease);
        assert_int_equal(tenure[2].voter.until, over);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(ranks_go_by_host_device_and_slot),
                cmocka_unit_test(slots_are_numbered_on_each_host),
                cmocka_unit_test(a_newcomer_stands_with_its_device),
                cmocka_unit_test(a_newer_process_takes_the_rank_and_fences_the_older),
                cmocka_unit_test(while_forming_the_newer_one_just_comes_instead),
                cmocka_unit_test(who_comes_back_gets_its_own_place),
                cmocka_unit_test(a_world_is_larger_than_what_one_daemon_serves),
                cmocka_unit_test(ids_of_members_differ_and_those_of_places_are_small),
                cmocka_unit_test(a_membership_is_restored_from_reports),
                cmocka_unit_test(the_others_still_ask),
                cmocka_unit_test(what_has_no_room_is_forgotten),
                cmocka_unit_test(one_of_three_serves_as_long_as_it_reaches_a_majority),
                cmocka_unit_test(who_was_cut_off_disturbs_nobody),
                cmocka_unit_test(terms_name_their_candidate),
                cmocka_unit_test(a_majority_remembers_the_latest_generation),
                cmocka_unit_test(an_older_grant_sets_no_lease_back),
                cmocka_unit_test(a_promise_lasts_over_a_sleep),
                cmocka_unit_test(a_promise_that_was_over_before_a_sleep_stays_over),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
