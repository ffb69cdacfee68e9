/* SPDX-License-Identifier: Apache-2.0 */
/* Forming, ranks, time-outs and losses: single cases, and random schedules checked against what must always
 * hold. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/membership.h"

static struct seat room[LIMIT_LOCAL + 1];
static struct membership m = { .seat = room, .most = LIMIT_LOCAL };

static struct membership_request request(uint64_t member, uint32_t min, uint32_t max) {
        return (struct membership_request){
                .member = member, .pid = (int32_t)member + 100, .min_world = min, .max_world = max
        };
}

static int join(struct membership_request r, uint64_t now, struct refusal *refusal) {
        return membership_join(&m, &r, now, refusal);
}

static void forms_when_all_are_there(void **state) {
        struct refusal refusal;
        uint64_t gone;

        membership_init(&m, "j", 0);
        assert_int_equal(join(request(1, 2, 2), 0, &refusal), 0);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_NOTHING);
        assert_int_equal(join(request(2, 2, 2), 0, &refusal), 0);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_NOTHING);
        assert_int_equal(m.generation, 1);
        assert_int_equal(membership_find(&m, 1)->rank, 0);
        assert_int_equal(membership_find(&m, 2)->rank, 1);
}

static void no_more_than_the_world_come_at_once(void **state) {
        struct refusal refusal;

        membership_init(&m, "j", 0);
        assert_int_equal(join(request(1, 2, 2), 0, &refusal), 0);
        assert_int_equal(join(request(2, 2, 2), 0, &refusal), 0);
        /* before time was let pass */
        assert_int_equal(join(request(3, 2, 2), 0, &refusal), WIRE__CODE__JOB_FULL);
        assert_int_equal(m.n, 2);
}

static void asked_ranks_are_granted_or_refused(void **state) {
        struct membership_request r = request(1, 3, 3);
        struct refusal refusal;
        uint64_t gone;

        membership_init(&m, "j", 0);
        r.has_rank = true;
        r.rank = 2;
        assert_int_equal(join(r, 0, &refusal), 0);
        r.member = 2;
        assert_int_equal(join(r, 0, &refusal), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(refusal.rank, 2);
        assert_int_equal(refusal.pid, 101);
        r.rank = 3;
        assert_int_equal(join(r, 0, &refusal), WIRE__CODE__INVALID);
        assert_int_equal(join(request(3, 3, 3), 0, &refusal), 0);
        r.rank = 0;
        r.member = 4;
        assert_int_equal(join(r, 0, &refusal), 0);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 1)->rank, 2);
        assert_int_equal(membership_find(&m, 3)->rank, 1);
        assert_int_equal(membership_find(&m, 4)->rank, 0);
        r.member = 5;
        assert_int_equal(join(r, 0, &refusal), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(join(request(6, 3, 3), 0, &refusal), WIRE__CODE__JOB_FULL);
}

static void slots_order_ranks_and_are_unique(void **state) {
        struct membership_request r = request(1, 2, 2);
        struct refusal refusal;
        uint64_t gone;

        membership_init(&m, "j", 0);
        r.has_slot = true;
        r.slot = 1;
        assert_int_equal(join(r, 0, &refusal), 0);
        r.member = 2;
        assert_int_equal(join(r, 0, &refusal), WIRE__CODE__RANK_TAKEN);
        r.slot = 0;
        assert_int_equal(join(r, 0, &refusal), 0);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 2)->rank, 0);
        assert_int_equal(membership_find(&m, 2)->slot, 0);
        assert_int_equal(membership_find(&m, 1)->slot, 1);
}

static void members_must_agree_on_the_world(void **state) {
        struct refusal refusal;

        membership_init(&m, "j", 0);
        assert_int_equal(join(request(1, 2, 2), 0, &refusal), 0);
        assert_int_equal(join(request(2, 3, 3), 0, &refusal), WIRE__CODE__INVALID);
        assert_non_null(strstr(refusal.text, "pid 101"));
}

/* A job of 2 to 4, whose last call of 1000 begins with the second member. Returns what the next ones ask for,
 * too. */
static struct membership_request call_last_at_100(void) {
        struct membership_request r = request(1, 2, 4);
        struct refusal refusal;

        membership_init(&m, "j", 0);
        r.last_call = 1000;
        assert_int_equal(join(r, 0, &refusal), 0);
        assert_true(membership_deadline(&m) == UINT64_MAX);
        r.member = 2;
        assert_int_equal(join(r, 100, &refusal), 0);
        assert_int_equal(membership_deadline(&m), 1100);
        return r;
}

static void the_last_call_starts_at_min_and_is_not_extended(void **state) {
        struct membership_request r = call_last_at_100();
        struct refusal refusal;
        uint64_t gone;

        r.member = 3;
        assert_int_equal(join(r, 1000, &refusal), 0);
        assert_int_equal(membership_tick(&m, 1099, &gone, &refusal), MEMBERSHIP_NOTHING);
        assert_int_equal(membership_tick(&m, 1100, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 3);
}

static void the_last_call_begins_anew_when_too_few_are_left(void **state) {
        struct membership_request r = call_last_at_100();
        struct refusal refusal;
        uint64_t gone;

        membership_remove(&m, 2, WIRE__CAUSE__CLOSED, 500);
        assert_true(membership_deadline(&m) == UINT64_MAX);
        r.member = 3;
        assert_int_equal(join(r, 2000, &refusal), 0);
        assert_int_equal(membership_tick(&m, 2999, &gone, &refusal), MEMBERSHIP_NOTHING);
        assert_int_equal(membership_tick(&m, 3000, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
}

static void the_wait_ends_and_names_who_is_missing(void **state) {
        struct membership_request r = request(1, 3, 3);
        struct refusal refusal;
        uint64_t gone = 0;

        membership_init(&m, "train", 0);
        r.has_rank = true;
        r.rank = 1;
        r.timeout = 500;
        assert_int_equal(join(r, 10, &refusal), 0);
        assert_int_equal(membership_deadline(&m), 510);
        assert_int_equal(membership_tick(&m, 509, &gone, &refusal), MEMBERSHIP_NOTHING);
        assert_int_equal(membership_tick(&m, 510, &gone, &refusal), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 1);
        assert_int_equal(refusal.code, WIRE__CODE__TIMEOUT);
        assert_non_null(strstr(refusal.text, "missing ranks 0, 2"));
        assert_int_equal(m.n, 0);
}

static void an_older_incarnation_is_refused(void **state) {
        struct membership_request r = request(1, 1, 1);
        struct refusal refusal;

        membership_init(&m, "j", 5);
        r.incarnation = 4;
        assert_int_equal(join(r, 0, &refusal), WIRE__CODE__STALE);
        r.incarnation = 5;
        assert_int_equal(join(r, 0, &refusal), 0);
}

static void the_first_loss_breaks_the_generation(void **state) {
        struct refusal refusal;
        uint64_t gone;

        membership_init(&m, "j", 0);
        assert_int_equal(join(request(1, 2, 2), 0, &refusal), 0);
        assert_false(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 0)); /* forming: makes room */
        assert_int_equal(m.n, 0);
        assert_int_equal(join(request(2, 2, 2), 0, &refusal), 0);
        assert_int_equal(join(request(3, 2, 2), 0, &refusal), 0);
        assert_int_equal(membership_tick(&m, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        assert_true(membership_remove(&m, 3, WIRE__CAUSE__EXITED, 0));
        assert_int_equal(m.state, MEMBERSHIP_BROKEN);
        assert_int_equal(m.loss.rank, 1);
        assert_int_equal(m.loss.pid, 103);
        assert_false(membership_remove(&m, 2, WIRE__CAUSE__CLOSED, 0));
        assert_int_equal(m.loss.rank, 1);
        assert_false(membership_end(&m, WIRE__CAUSE__SHUTDOWN));
}

static void check_formed(uint32_t min, uint32_t max, const struct membership_request *asked) {
        bool slot[LIMIT_LOCAL] = { false };

        assert_true(m.n >= min && m.n <= max);
        for (uint32_t rank = 0; rank < m.n; rank++) {
                const struct seat *member = &m.seat[rank];
                const struct membership_request *r = &asked[member->request.member];

                assert_int_equal(member->rank, rank);
                assert_false(slot[member->slot]);
                slot[member->slot] = true;
                if (r->has_rank)
                        assert_int_equal(member->rank, r->rank);
                if (r->has_slot)
                        assert_int_equal(member->slot, r->slot);
        }
}

/* One random schedule: joins with random wishes, departures, time. Whatever happens, a formed job has sound
 * ranks and every wait ends. */
static void schedule(unsigned seed) {
        struct membership_request asked[512];
        uint32_t max = 1 + seed % 7, min = 1 + seed / 7 % max;
        uint64_t now = 0, gone;
        struct refusal refusal;

        srand(seed);
        membership_init(&m, "j", 0);
        for (uint64_t id = 0; id < 500 && m.state == MEMBERSHIP_FORMING; id++) {
                struct membership_request r = request(id, min, max);

                r.has_rank = min == max && rand() % 3 == 0;
                r.rank = (uint32_t)rand() % max;
                r.has_slot = rand() % 4 == 0;
                r.slot = (uint32_t)rand() % max;
                r.timeout = (uint64_t)(rand() % 50) + 1;
                r.last_call = 20;
                asked[id] = r;
                membership_join(&m, &r, now, &refusal);
                if (rand() % 5 == 0 && m.n > 0)
                        membership_remove(&m, m.seat[(uint32_t)rand() % m.n].request.member,
                                          WIRE__CAUSE__EXITED, 0);
                now += (uint64_t)(rand() % 10);
                for (enum membership_event event;
                     (event = membership_tick(&m, now, &gone, &refusal)) != MEMBERSHIP_NOTHING;) {
                        if (event == MEMBERSHIP_HAS_FORMED)
                                check_formed(min, max, asked);
                        else
                                assert_int_equal(membership_find(&m, gone)->state, SEAT_REFUSED);
                }
        }
        if (m.state != MEMBERSHIP_FORMING)
                return;
        while (membership_tick(&m, UINT64_MAX - 1, &gone, &refusal) == MEMBERSHIP_EXPIRED)
                continue;
        assert_true(m.n == 0 || m.state == MEMBERSHIP_FORMED);
}

static void random_schedules(void **state) {
        for (unsigned seed = 0; seed < 20000; seed++)
                schedule(seed);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(forms_when_all_are_there),
                cmocka_unit_test(no_more_than_the_world_come_at_once),
                cmocka_unit_test(asked_ranks_are_granted_or_refused),
                cmocka_unit_test(slots_order_ranks_and_are_unique),
                cmocka_unit_test(members_must_agree_on_the_world),
                cmocka_unit_test(the_last_call_starts_at_min_and_is_not_extended),
                cmocka_unit_test(the_last_call_begins_anew_when_too_few_are_left),
                cmocka_unit_test(the_wait_ends_and_names_who_is_missing),
                cmocka_unit_test(an_older_incarnation_is_refused),
                cmocka_unit_test(the_first_loss_breaks_the_generation),
                cmocka_unit_test(random_schedules),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
