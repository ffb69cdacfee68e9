/* SPDX-License-Identifier: Apache-2.0 */
/* The queue between machines and those who drive them: order, owners, room that is used again, calls from
 * inside. */
#include "tests.h"

#include "rendezvous/machine/effects.h"

static struct effects effects;
static int owners[2];
static const struct outlet first = { &effects, &owners[0] }, second = { &effects, &owners[1] };
static uint64_t seen[4096];
static unsigned n_seen, most;

static void send_with(const struct outlet *out, uint64_t stamp, uint32_t n_members) {
        static struct report report;
        static struct order order;

        if (stamp % 2 == 0) {
                report_clear(&report);
                report.stamp = stamp;
                report.n_members = n_members;
                if (n_members > 0)
                        report.member_of[n_members - 1].id = stamp;
                effects_report(out, &report);
                return;
        }
        order_clear(&order);
        order.kind = ORDER_NEWGEN;
        order.stamp = stamp;
        order.n_members = n_members;
        if (n_members > 0)
                order.member_of[n_members - 1].id = stamp;
        effects_order(out, &order);
}

/* The stamp of its message. */
static uint64_t stamp_of(const struct effect *effect) {
        const struct order *order = effect->order;
        const struct report *report = effect->report;

        assert_true((order == NULL) != (report == NULL));
        if (order != NULL && order->n_members > 0)
                assert_int_equal(order->member_of[order->n_members - 1].id, order->stamp);
        if (report != NULL && report->n_members > 0)
                assert_int_equal(report->member_of[report->n_members - 1].id, report->stamp);
        return order != NULL ? order->stamp : report->stamp;
}

static uint64_t number_of(const struct effect *effect) {
        if (effect->action == NULL)
                return stamp_of(effect);
        assert_true(effect->order == NULL && effect->report == NULL);
        return effect->action->number;
}

static void act_with(const struct outlet *out, uint64_t number) {
        effects_act(out, &(struct action){ .kind = ACTION_COMMITTED, .number = number });
}

static void note(const struct effect *effect) {
        seen[n_seen++] = number_of(effect);
}

static void start(size_t size) {
        n_seen = 0;
        assert_int_equal(effects_init(&effects, size), 0);
}

TEST_ALONE(effects_come_in_order_and_name_their_owner) {
        start(1u << 20);
        assert_false(effects_any(&effects));
        send_with(&first, 1, 0);
        assert_true(effects_any(&effects));
        act_with(&second, 2);
        send_with(&first, 3, 200);
        effects_drain(&effects, note);
        assert_false(effects_any(&effects));
        assert_int_equal(n_seen, 3);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(seen[i], i + 1);
        effects_drain(&effects, note);
        assert_int_equal(n_seen, 3);
        effects_deinit(&effects);
}

static void look_at_owner(const struct effect *effect) {
        assert_ptr_equal(effect->owner, &owners[effect->action != NULL]);
        n_seen++;
}

TEST_ALONE(each_effect_has_its_own_owner) {
        start(1u << 20);
        send_with(&first, 1, 3);
        act_with(&second, 2);
        effects_drain(&effects, look_at_owner);
        assert_int_equal(n_seen, 2);
        effects_deinit(&effects);
}

/* Over several chunks, and beside the effect that is being looked at. */
TEST_ALONE(effects_of_an_owner_that_goes_are_dropped) {
        struct effect effect;

        start(4096);
        for (uint64_t i = 0; i < 500; i++)
                send_with(i % 3 == 0 ? &first : &second, i, (uint32_t)(i % 30));
        assert_true(effects_next(&effects, &effect));
        assert_ptr_equal(effect.owner, first.owner);
        effects_forget(&effects, first.owner);
        assert_int_equal(stamp_of(&effect), 0);
        for (uint64_t i = 1; i < 500; i++) {
                if (i % 3 == 0)
                        continue;
                assert_true(effects_next(&effects, &effect));
                assert_ptr_equal(effect.owner, second.owner);
                assert_int_equal(stamp_of(&effect), i);
        }
        assert_false(effects_next(&effects, &effect));
        effects_forget(&effects, second.owner);
        send_with(&first, 1, 2);
        assert_true(effects_next(&effects, &effect));
        effects_deinit(&effects);
}

/* Each one leads to another one, of another size, until there were enough: the room is used many times over.
 */
static void breed(const struct effect *effect) {
        uint64_t number = number_of(effect);

        note(effect);
        effects_drain(&effects, note); /* from inside: the outer one does it */
        assert_int_equal(n_seen, number);
        if (number >= most)
                return;
        if (number % 3 == 0)
                act_with(&first, number + 2);
        else
                send_with(&second, number + 2, (uint32_t)(number * 7 % 40));
}

TEST_ALONE(what_comes_of_an_effect_comes_behind_what_is_left) {
        start(40000);
        most = 4000;
        act_with(&first, 1);
        send_with(&second, 2, 5);
        effects_drain(&effects, breed);
        assert_in_range(n_seen, most, most + 2);
        for (unsigned i = 0; i < n_seen; i++)
                assert_int_equal(seen[i], i + 1);
        effects_deinit(&effects);
}

TEST_ALONE(one_that_is_larger_than_a_chunk_is_there) {
        struct effect effect;

        start(4096);
        send_with(&first, 1, LIMIT_SEATS);
        assert_true(effects_any(&effects));
        assert_true(effects_next(&effects, &effect));
        assert_int_equal(stamp_of(&effect), 1);
        assert_false(effects_next(&effects, &effect));
        assert_false(effects_any(&effects));
        effects_deinit(&effects);
}

/* One that is larger than a chunk among them, and one after it. */
TEST_ALONE(a_call_may_append_more_than_there_is_room_for) {
        start(4096);
        for (unsigned turn = 0; turn < 3; turn++) {
                n_seen = 0;
                for (uint64_t i = 0; i < 500; i++)
                        send_with(&first, i, i == 250 ? LIMIT_SEATS : (uint32_t)(i % 30));
                effects_drain(&effects, note);
                assert_int_equal(n_seen, 500);
                for (unsigned i = 0; i < n_seen; i++)
                        assert_int_equal(seen[i], i);
        }
        effects_deinit(&effects);
}

static void read_refusal(const struct effect *effect) {
        assert_string_equal(effect->action->refusal->text, "there is no room");
        n_seen++;
}

TEST_ALONE(a_refusal_outlives_the_call_that_made_it) {
        struct refusal refusal;

        start(1u << 20);
        refuse(&refusal, 1, "there is no room");
        effects_act(&first, &(struct action){ .kind = ACTION_REFUSED, .refusal = &refusal });
        memset(&refusal, 0, sizeof(refusal));
        effects_drain(&effects, read_refusal);
        assert_int_equal(n_seen, 1);
        effects_deinit(&effects);
}
