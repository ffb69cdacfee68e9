/* SPDX-License-Identifier: Apache-2.0 */
/* Which daemon may coordinate: leases of three daemons, terms, and the record of the latest generation. */
#include "tests.h"

#include "rendezvous/tenure.h"

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

        if (effects.first == NULL)
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

TEST_ALONE(one_of_three_serves_as_long_as_it_reaches_a_majority) {
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

/* Two runs that have lost what they knew of terms, and hear of one term, begin other ones. */
TEST_ALONE(the_terms_of_two_runs_are_apart) {
        const uint64_t heard = UINT64_C(1000) << 8;
        uint64_t term[2];

        start_tenures();
        for (unsigned run = 0; run < 2; run++) {
                const struct outlet out = { .effects = &effects };

                tenure_init(&tenure[0], 0, 1, &times, 77 + run, now, &out);
                tenure_tick(&tenure[0], now);
                assert_int_equal(tenure[0].term, (uint64_t)(78 + run) << 8);
                tenure_exceeded(&tenure[0], heard, now);
                assert_false(tenure[0].serving);
                tenure_tick(&tenure[0], now);
                assert_true(tenure[0].serving);
                term[run] = tenure[0].term;
                assert_true(term[run] > heard);
        }
        assert_true(term[0] != term[1]);
}

TEST_ALONE(who_was_cut_off_disturbs_nobody) {
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

TEST_ALONE(terms_name_their_candidate) {
        start_tenures();
        cut_off = 7;
        pass(200);
        for (uint32_t i = 0; i < 3; i++)
                assert_int_equal(tenure[i].term & 0xff, i);
}

TEST_ALONE(a_majority_remembers_the_latest_generation) {
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

TEST_ALONE(an_older_grant_sets_no_lease_back) {
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
TEST_ALONE(a_promise_lasts_over_a_sleep) {
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

TEST_ALONE(a_promise_that_was_over_before_a_sleep_stays_over) {
        uint64_t over;

        start_tenures();
        over = tenure[2].voter.until;
        now = over + 1;
        tenure_slept(&tenure[2], now, now + 10 * times.lease);
        assert_int_equal(tenure[2].voter.until, over);
}
