/* SPDX-License-Identifier: Apache-2.0 */
/* Spares of a membership: who waits, who gets a place, when, and who is told that there will be none. */
#define CALL 50

#include "membership_fixture.h"

#include <string.h>

static struct membership_request spare(uint64_t member, uint32_t min, uint32_t max) {
        struct membership_request r = request(member, min, max);

        r.spare = true;
        return r;
}

static void lose(uint64_t member, uint32_t cause, uint64_t now) {
        assert_true(membership_remove(&m, member, cause, now));
        m.busy = false;
}

static void takes_the_place_of_a_lost_member_that_had_asked_for_its_rank(void **state) {
        form(2, 2, true);
        assert_int_equal(join(request(8, 2, 2), 1), WIRE__CODE__JOB_FULL);
        assert_non_null(strstr(refusal.text, "as a spare"));
        assert_int_equal(join(spare(3, 2, 2), 1), 0);
        assert_true(membership_waits(&m, 3));
        assert_int_equal(membership_deadline(&m), UINT64_MAX);
        m.boundary = true;
        assert_int_equal(tick(2), MEMBERSHIP_NOTHING); /* a full world does not grow */
        lose(2, WIRE__CAUSE__EXITED, 10);
        assert_int_equal(m.state, MEMBERSHIP_REPLACING);
        assert_int_equal(membership_vacant(&m), 0);
        assert_false(membership_waits(&m, 3));
        assert_int_equal(join(ranked(4, 2, 1), 11), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(tick(11), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 3)->rank, 1);
        assert_int_equal(membership_find(&m, 3)->id, 2);
        assert_int_equal(m.generation, 2);
}

static void the_first_that_came_is_the_first_that_gets_a_place(void **state) {
        form(3, 3, true);
        for (uint64_t member = 4; member < 7; member++)
                assert_int_equal(join(spare(member, 3, 3), member), 0);
        assert_false(membership_remove(&m, 5, WIRE__CAUSE__EXITED, 8)); /* nobody is disturbed */
        assert_int_equal(m.state, MEMBERSHIP_FORMED);
        assert_true(membership_remove(&m, 3, WIRE__CAUSE__EXITED, 10));
        assert_false(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 11));
        m.busy = false;
        assert_int_equal(tick(11), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 2);
        assert_int_equal(membership_find(&m, 6)->rank, 0);
        assert_int_equal(m.n_waiting, 0);
        lose(2, WIRE__CAUSE__EXITED, 20); /* the other two hold the state */
        assert_int_equal(tick(20 + GRACE), MEMBERSHIP_HAS_BROKEN);
}

static void also_without_grace_and_of_who_leaves(void **state) {
        struct membership_request first = ranked(1, 2, 0);

        membership_init(&m, "j", 0);
        first.grace = 0;
        assert_int_equal(join(first, 0), 0);
        assert_int_equal(join(ranked(2, 2, 1), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(join(spare(3, 2, 2), 1), 0);
        assert_int_equal(join(spare(4, 2, 2), 1), 0);
        lose(2, WIRE__CAUSE__EXITED, 10);
        assert_int_equal(tick(10), MEMBERSHIP_HAS_FORMED);
        lose(1, WIRE__CAUSE__LEAVING, 20);
        assert_int_equal(tick(20), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 0);
}

static void who_dies_in_the_place_makes_room_for_the_next(void **state) {
        form(2, 2, true);
        assert_int_equal(join(spare(3, 2, 2), 1), 0);
        assert_int_equal(join(spare(4, 2, 2), 1), 0);
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10));
        assert_false(membership_remove(&m, 3, WIRE__CAUSE__EXITED, 11));
        m.busy = false;
        assert_int_equal(tick(11), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 1);
}

static void a_newer_process_comes_before_the_spares(void **state) {
        struct membership_request old = ranked(2, 2, 1), new = ranked(4, 2, 1);

        old.identity = new.identity = 7;
        new.instance = 1;
        membership_init(&m, "j", 0);
        assert_int_equal(join(ranked(1, 2, 0), 0), 0);
        assert_int_equal(join(old, 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(join(spare(3, 2, 2), 1), 0);
        assert_int_equal(join(new, 2), 0);
        assert_int_equal(m.fenced, 2);
        m.busy = false;
        assert_int_equal(tick(2), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 1);
        assert_true(membership_waits(&m, 3));
}

static void a_world_that_can_grow_takes_only_as_many_as_there_is_room_for(void **state) {
        membership_init(&m, "j", 0);
        assert_int_equal(join(request(1, 1, 2), 0), 0);
        assert_int_equal(tick(CALL), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(join(spare(2, 1, 2), 60), 0);
        assert_int_equal(membership_fitting(&m), 1);
        assert_int_equal(join(spare(3, 1, 2), 61), 0);
        assert_int_equal(membership_fitting(&m), 1);
        assert_int_equal(join(request(4, 1, 2), 62),
                         WIRE__CODE__JOB_FULL); /* the room is the first spare's */
        m.boundary = true;
        assert_int_equal(tick(63), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
        assert_int_equal(membership_find(&m, 2)->rank, 1);
        assert_int_equal(membership_find(&m, 2)->slot, 1);
        assert_true(membership_waits(&m, 3));
        assert_int_equal(tick(64), MEMBERSHIP_NOTHING);
        lose(1, WIRE__CAUSE__EXITED, 70);
        assert_int_equal(tick(70), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 3)->rank, 0);
        assert_int_equal(membership_find(&m, 2)->rank, 1);
}

/* Somebody has asked for a rank in a world that had become smaller. */
static void a_world_with_room_does_not_grow_where_a_rank_was_asked_for(void **state) {
        struct membership_request late = request(9, 1, 3);

        form(1, 3, false);
        lose(1, WIRE__CAUSE__LEAVING, 10);
        assert_int_equal(tick(10), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
        lose(2, WIRE__CAUSE__EXITED, 20);
        late.has_rank = true;
        assert_int_equal(join(late, 20), 0);
        assert_int_equal(tick(20), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(join(spare(4, 1, 3), 30), 0);
        assert_int_equal(membership_fitting(&m), 0);
        m.boundary = true;
        assert_int_equal(tick(31), MEMBERSHIP_NOTHING);
        assert_true(membership_waits(&m, 4));
}

static void while_forming_others_come_first_until_the_last_call_has_passed(void **state) {
        membership_init(&m, "j", 0);
        assert_int_equal(join(spare(1, 2, 2), 0), 0);
        assert_int_equal(membership_deadline(&m), UINT64_MAX);
        assert_int_equal(join(request(2, 2, 3), 0), WIRE__CODE__INVALID); /* the spare has said the size */
        assert_int_equal(join(request(2, 2, 2), 10), 0);
        assert_int_equal(tick(11), MEMBERSHIP_NOTHING);
        assert_int_equal(membership_deadline(&m), 10 + CALL);
        assert_int_equal(join(request(3, 2, 2), 12), 0);
        assert_int_equal(join(request(4, 2, 2), 12), WIRE__CODE__JOB_FULL);
        assert_int_equal(tick(12), MEMBERSHIP_HAS_FORMED);
        assert_true(membership_waits(&m, 1));
        assert_int_equal(membership_find(&m, 2)->rank, 0);
        assert_int_equal(membership_find(&m, 3)->rank, 1);
}

static void while_forming_spares_take_what_nobody_came_for(void **state) {
        membership_init(&m, "j", 0);
        assert_int_equal(join(spare(1, 3, 3), 0), 0);
        assert_int_equal(join(ranked(2, 3, 1), 0), 0);
        assert_int_equal(tick(1000), MEMBERSHIP_NOTHING); /* one is missing */
        assert_int_equal(join(spare(3, 3, 3), 1000), 0);
        assert_int_equal(join(spare(4, 3, 3), 1000), 0);
        assert_int_equal(tick(999 + CALL), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(1000 + CALL), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 3);
        assert_int_equal(membership_find(&m, 1)->rank, 0);
        assert_int_equal(membership_find(&m, 2)->rank, 1);
        assert_int_equal(membership_find(&m, 3)->rank, 2);
        assert_true(membership_waits(&m, 4));
}

static void a_spare_that_goes_while_forming_is_not_counted(void **state) {
        membership_init(&m, "j", 0);
        assert_int_equal(join(spare(1, 2, 2), 0), 0);
        assert_int_equal(join(request(2, 2, 2), 0), 0);
        assert_int_equal(membership_deadline(&m), CALL);
        assert_false(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 1));
        assert_int_equal(membership_deadline(&m), UINT64_MAX);
        assert_int_equal(tick(1000), MEMBERSHIP_NOTHING);
        assert_int_equal(m.n, 1);
        assert_non_null(membership_find(&m, 2));
}

/* A spare that knows the job from a former daemon gives its members longer to come back. */
static void the_last_call_of_a_spare_may_be_longer(void **state) {
        struct membership_request patient = spare(1, 2, 2);

        patient.last_call = 500;
        membership_init(&m, "j", 0);
        assert_int_equal(join(patient, 0), 0);
        assert_int_equal(join(spare(2, 2, 2), 10), 0);
        assert_int_equal(tick(509), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(510), MEMBERSHIP_HAS_FORMED);
}

static void waits_no_longer_than_it_wants(void **state) {
        struct membership_request short_wait = spare(3, 2, 2);

        short_wait.timeout = 500;
        form(2, 2, true);
        assert_int_equal(join(short_wait, 100), 0);
        assert_int_equal(join(spare(4, 2, 2), 100), 0);
        assert_int_equal(membership_deadline(&m), 600);
        assert_int_equal(tick(599), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(600), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 3);
        assert_int_equal(refusal.code, WIRE__CODE__TIMEOUT);
        assert_non_null(strstr(refusal.text, "spare"));
        assert_true(membership_waits(&m, 4));
        assert_int_equal(m.state, MEMBERSHIP_FORMED);
}

static void whose_wait_ends_in_a_place_leaves_it_to_the_next(void **state) {
        struct membership_request short_wait = spare(4, 3, 3);

        short_wait.timeout = 500;
        form(3, 3, true);
        assert_int_equal(join(short_wait, 100), 0);
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 200));
        assert_int_equal(join(spare(5, 3, 3), 300),
                         0); /* still busy: waits behind, where no place is vacant */
        assert_int_equal(tick(600), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 4);
        assert_int_equal(membership_vacant(&m), 0);
        m.busy = false;
        assert_int_equal(tick(600), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 5)->rank, 1);
}

static void asks_for_nothing_and_can_go_on(void **state) {
        struct membership_request r = spare(3, 2, 2);

        form(2, 2, false);
        r.has_rank = true;
        assert_int_equal(join(r, 1), WIRE__CODE__INVALID);
        r.has_rank = false;
        r.has_slot = true;
        assert_int_equal(join(r, 1), WIRE__CODE__INVALID);
        r.has_slot = false;
        r.adapts = false;
        assert_int_equal(join(r, 1), WIRE__CODE__UNSUPPORTED);
        assert_int_equal(join(spare(3, 1, 2), 1), WIRE__CODE__INVALID);
        assert_int_equal(m.n_waiting, 0);
}

static void a_job_that_cannot_go_on_has_no_spares(void **state) {
        struct membership_request old = request(2, 2, 2);

        old.adapts = false;
        membership_init(&m, "j", 0);
        assert_int_equal(join(spare(1, 2, 2), 0), 0);
        assert_int_equal(join(old, 0), 0);
        assert_int_equal(join(request(3, 2, 2), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_deadline(&m), 0);
        assert_int_equal(tick(0), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 1);
        assert_int_equal(refusal.code, WIRE__CODE__JOB_FULL);
        assert_int_equal(membership_deadline(&m), UINT64_MAX);
        assert_int_equal(join(spare(4, 2, 2), 1), WIRE__CODE__JOB_FULL);
}

/* Whoever is on its way back has been waited for before that. */
static void a_vacant_place_of_a_restored_job_is_taken_at_once(void **state) {
        struct membership_request back = ranked(11, 2, 0);

        membership_init(&m, "j", 0);
        seat_set_state(membership_note(&m, &back), SEAT_CLAIMS);
        membership_restore(&m, 4, 2, 100);
        assert_int_equal(join(spare(3, 2, 2), 100), 0);
        assert_false(membership_waits(&m, 3));
        m.busy = false;
        assert_int_equal(tick(101), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 3)->rank, 1);
}

static void no_more_than_there_is_room_for_wait(void **state) {
        form(2, 2, false);
        for (uint64_t member = 3; member <= LIMIT_LOCAL; member++)
                assert_int_equal(join(spare(member, 2, 2), 1), 0);
        assert_int_equal(join(spare(1000, 2, 2), 1), WIRE__CODE__JOB_FULL);
        lose(1, WIRE__CAUSE__EXITED, 2);
        assert_int_equal(join(spare(1000, 2, 2), 2), 0);
        assert_int_equal(m.n + m.n_waiting, LIMIT_LOCAL);
        membership_init(&m, "j", 0);
        for (uint64_t member = 1; member <= LIMIT_LOCAL; member++)
                assert_int_equal(join(spare(member, 2, 2), 1), 0);
        assert_int_equal(join(request(1000, 2, 2), 1), WIRE__CODE__JOB_FULL);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(takes_the_place_of_a_lost_member_that_had_asked_for_its_rank),
                cmocka_unit_test(the_first_that_came_is_the_first_that_gets_a_place),
                cmocka_unit_test(also_without_grace_and_of_who_leaves),
                cmocka_unit_test(who_dies_in_the_place_makes_room_for_the_next),
                cmocka_unit_test(a_newer_process_comes_before_the_spares),
                cmocka_unit_test(a_world_that_can_grow_takes_only_as_many_as_there_is_room_for),
                cmocka_unit_test(a_world_with_room_does_not_grow_where_a_rank_was_asked_for),
                cmocka_unit_test(while_forming_others_come_first_until_the_last_call_has_passed),
                cmocka_unit_test(while_forming_spares_take_what_nobody_came_for),
                cmocka_unit_test(a_spare_that_goes_while_forming_is_not_counted),
                cmocka_unit_test(the_last_call_of_a_spare_may_be_longer),
                cmocka_unit_test(waits_no_longer_than_it_wants),
                cmocka_unit_test(whose_wait_ends_in_a_place_leaves_it_to_the_next),
                cmocka_unit_test(asks_for_nothing_and_can_go_on),
                cmocka_unit_test(a_job_that_cannot_go_on_has_no_spares),
                cmocka_unit_test(a_vacant_place_of_a_restored_job_is_taken_at_once),
                cmocka_unit_test(no_more_than_there_is_room_for_wait),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
