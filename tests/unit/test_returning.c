/* SPDX-License-Identifier: Apache-2.0 */
/* A membership that another daemon had formed: who may take which place, and when it goes on. */
#include "unit.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/membership.h"

#define EXPECTED 1000u
#define GRACE 500u
#define FIRST 10u /* of the members that are not there yet */

static struct membership_member room[LIMIT_WORLD];
static struct membership m = { .member = room, .most = LIMIT_WORLD };
static struct refusal refusal;

static void recover(uint32_t n, uint32_t min, uint32_t max) {
        membership_init(&m, "job", 0);
        membership_recover(&m,
                           &(struct membership_request){
                                   .min_world = min, .max_world = max, .incarnation = 3, .grace = GRACE },
                           7, n, FIRST, EXPECTED);
}

static void come_back(uint32_t rank, bool asked, uint64_t id) {
        membership_return(&m, rank, rank, id,
                          &(struct membership_request){ .member = FIRST + rank,
                                                        .min_world = m.min_world,
                                                        .max_world = m.max_world,
                                                        .has_rank = asked,
                                                        .rank = rank,
                                                        .adapts = true,
                                                        .incarnation = 3 });
}

static int newcomer(uint64_t member, bool asks, uint32_t rank, uint64_t now) {
        return membership_join(&m,
                               &(struct membership_request){ .member = member,
                                                             .min_world = m.min_world,
                                                             .max_world = m.max_world,
                                                             .has_rank = asks,
                                                             .rank = rank,
                                                             .adapts = true,
                                                             .incarnation = 3 },
                               now, &refusal);
}

static enum membership_event tick(uint64_t now) {
        uint64_t member;

        return membership_tick(&m, now, &member, &refusal);
}

static void all_come_back(void **state) {
        recover(3, 3, 3);
        for (uint32_t rank = 0; rank < 3; rank++) {
                m.busy = true;
                come_back(rank, true, 100 + rank);
                assert_int_equal(tick(1), MEMBERSHIP_NOTHING);
                m.busy = false;
                assert_int_equal(tick(1), rank < 2 ? MEMBERSHIP_NOTHING : MEMBERSHIP_HAS_FORMED);
        }
        assert_int_equal(m.generation, 8);
        assert_int_equal(m.n, 3);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(m.member[rank].id, 100 + rank);
}

static void who_does_not_come_is_lost_after_its_time_and_the_grace(void **state) {
        recover(2, 2, 2);
        come_back(0, true, 1);
        assert_int_equal(membership_deadline(&m), EXPECTED + GRACE);
        assert_int_equal(tick(EXPECTED + GRACE - 1), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(EXPECTED + GRACE), MEMBERSHIP_HAS_BROKEN);
}

static void the_others_close_ranks(void **state) {
        recover(3, 2, 3);
        come_back(0, false, 1);
        come_back(2, false, 3);
        assert_int_equal(tick(EXPECTED + GRACE), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
        assert_int_equal(m.member[1].id, 3);
        assert_int_equal(m.member[1].rank, 1);
}

static void a_newcomer_with_a_rank_takes_the_place_at_once(void **state) {
        recover(2, 2, 2);
        come_back(0, true, 1);
        assert_int_equal(newcomer(50, true, 0, 1), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(newcomer(50, true, 1, 1), 0);
        assert_int_equal(tick(1), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.member[1].request.member, 50);
}

static void a_newcomer_without_one_waits_for_the_holder(void **state) {
        recover(2, 2, 2);
        come_back(0, false, 1);
        assert_int_equal(newcomer(50, false, 0, EXPECTED - 1), WIRE__CODE__JOB_FULL);
        assert_int_equal(newcomer(50, false, 0, EXPECTED), 0);
        assert_int_equal(tick(EXPECTED), MEMBERSHIP_HAS_FORMED);

        recover(2, 2, 2);
        come_back(0, false, 1);
        membership_forget(&m, 1, 5); /* it had been lost before */
        assert_int_equal(newcomer(50, false, 0, 6), 0);
        assert_int_equal(tick(6), MEMBERSHIP_HAS_FORMED);
}

static void newcomers_alone_are_not_the_job(void **state) {
        recover(2, 2, 2);
        assert_int_equal(newcomer(50, true, 0, 1), 0);
        assert_int_equal(newcomer(51, true, 1, 1), 0);
        assert_int_equal(tick(1), MEMBERSHIP_HAS_BROKEN);
}

/* … and none of them has the id of another. */
static void a_newcomer_with_the_number_of_a_holder_gets_another_id(void **state) {
        recover(3, 3, 3);
        come_back(0, true, 49);
        assert_int_equal(newcomer(50, true, 2, 1), 0);
        come_back(1, true, 50);
        assert_int_equal(tick(1), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.member[0].id, 49);
        assert_int_equal(m.member[1].id, 50);
        assert_int_equal(m.member[2].request.member, 50);
        assert_int_equal(m.member[2].id, 51);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(all_come_back),
                cmocka_unit_test(who_does_not_come_is_lost_after_its_time_and_the_grace),
                cmocka_unit_test(the_others_close_ranks),
                cmocka_unit_test(a_newcomer_with_a_rank_takes_the_place_at_once),
                cmocka_unit_test(a_newcomer_without_one_waits_for_the_holder),
                cmocka_unit_test(newcomers_alone_are_not_the_job),
                cmocka_unit_test(a_newcomer_with_the_number_of_a_holder_gets_another_id),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
