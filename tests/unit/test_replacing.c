/* SPDX-License-Identifier: Apache-2.0 */
/* From one generation to the next: single cases, and random lives of jobs checked against what must always
 * hold. */
#define CALL 0

#include "membership_fixture.h"

#include <stdlib.h>
#include <string.h>

/* `n` members where `max` could be: the last call has passed. */
static void form_late(uint32_t n, uint32_t max) {
        membership_init(&m, "j", 0);
        for (uint32_t i = 0; i < n; i++)
                assert_int_equal(join(request(i + 1, n, max), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
}

static void a_successor_inherits_rank_and_id(void **state) {
        form(3, 3, true);
        m.seat[1].behind = true; /* the lost one had not taken the state yet */
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10));
        assert_int_equal(m.state, MEMBERSHIP_REPLACING);
        assert_int_equal(m.loss.rank, 1);
        assert_int_equal(membership_vacant(&m), 1);
        assert_true(m.busy);
        assert_int_equal(join(ranked(4, 3, 1), 20), 0);
        assert_int_equal(tick(20), MEMBERSHIP_NOTHING); /* somebody still holds on to the old generation */
        m.busy = false;
        assert_int_equal(tick(20), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.generation, 2);
        assert_int_equal(m.state, MEMBERSHIP_FORMED);
        assert_int_equal(membership_find(&m, 4)->rank, 1);
        assert_int_equal(membership_find(&m, 4)->id, 2);
        assert_false(membership_find(&m, 4)->behind);
        assert_int_equal(membership_find(&m, 1)->rank, 0);
        assert_int_equal(membership_find(&m, 3)->rank, 2);
        assert_null(membership_find(&m, 2));
}

/* Its former place is another one's wish: the rank that it asks for counts. */
static void a_newer_process_that_asks_for_another_rank_gets_that(void **state) {
        struct membership_request r = ranked(1, 3, 0);

        membership_init(&m, "j", 0);
        r.identity = 5;
        r.instance = 1;
        assert_int_equal(join(r, 0), 0);
        assert_int_equal(join(ranked(2, 3, 1), 0), 0);
        assert_int_equal(join(ranked(3, 3, 2), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_true(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 10));
        membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10);
        r = ranked(4, 3, 1);
        r.identity = 5;
        r.instance = 2;
        assert_int_equal(join(r, 20), 0);
        assert_int_equal(membership_find(&m, 4)->rank, 1);
        assert_int_equal(m.seat[0].state, SEAT_LOST);
}

static void places_that_are_not_vacant_are_refused(void **state) {
        struct membership_request old = ranked(6, 3, 1);

        form(3, 3, true);
        membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10);
        assert_int_equal(join(ranked(4, 3, 0), 20), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(refusal.pid, 101);
        assert_int_equal(join(ranked(4, 4, 1), 20), WIRE__CODE__INVALID);
        old.adapts = false;
        assert_int_equal(join(old, 20), WIRE__CODE__UNSUPPORTED);
        assert_int_equal(join(ranked(4, 3, 1), 20), 0);
        assert_int_equal(join(ranked(5, 3, 1), 20), WIRE__CODE__RANK_TAKEN);
        assert_int_equal(join(request(5, 3, 3), 20), WIRE__CODE__JOB_FULL);
}

static void who_asks_for_no_rank_gets_the_first_vacant_place(void **state) {
        struct membership_request r = request(11, 3, 3);

        form(3, 3, false);
        membership_remove(&m, 3, WIRE__CAUSE__EXITED, 10);
        membership_remove(&m, 1, WIRE__CAUSE__EXITED, 11);
        m.busy = false;
        assert_int_equal(membership_vacant(&m), 2);
        r.has_slot = true;
        r.slot = 2;
        assert_int_equal(join(r, 12), 0);
        assert_int_equal(join(request(12, 3, 3), 12), 0);
        assert_int_equal(tick(12), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 11)->rank, 2);
        assert_int_equal(membership_find(&m, 12)->rank, 0);
}

static void nobody_comes_and_ranks_are_closed(void **state) {
        form(2, 3, false);
        assert_true(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 10));
        m.busy = false;
        assert_int_equal(membership_deadline(&m), 10 + GRACE);
        assert_int_equal(tick(9 + GRACE), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(10 + GRACE), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
        assert_int_equal(membership_find(&m, 2)->rank, 0);
        assert_int_equal(membership_find(&m, 3)->rank, 1);
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 2000));
        m.busy = false;
        assert_int_equal(tick(2000 + GRACE), MEMBERSHIP_HAS_BROKEN); /* one is fewer than the least world */
        assert_int_equal(m.state, MEMBERSHIP_BROKEN);
        assert_int_equal(tick(9999), MEMBERSHIP_NOTHING);
}

static void asked_ranks_fix_the_size(void **state) {
        form(1, 3, true);
        membership_remove(&m, 3, WIRE__CAUSE__EXITED, 0);
        m.busy = false;
        assert_int_equal(tick(GRACE), MEMBERSHIP_HAS_BROKEN);
}

static void who_leaves_takes_the_place_along(void **state) {
        form(2, 3, false);
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__LEAVING, 10));
        m.busy = false;
        assert_int_equal(tick(10), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
        assert_true(membership_remove(&m, 1, WIRE__CAUSE__LEAVING, 20));
        assert_int_equal(m.state, MEMBERSHIP_BROKEN);
}

/* The bug planted: its place is kept for the grace, as if it were lost. */
static void who_leaves_after_a_loss_takes_the_place_along_too(void **state) {
        form(2, 3, false);
        assert_true(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10));
        assert_false(membership_remove(&m, 3, WIRE__CAUSE__LEAVING, 20));
        m.busy = false;
        assert_int_equal(join(request(4, 2, 3), 30), 0);
        assert_int_equal(tick(30), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 2);
}

static void a_successor_that_dies_leaves_the_place_vacant_as_long_as_it_was_kept(void **state) {
        form(3, 3, true);
        membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10);
        membership_remove(&m, 3, WIRE__CAUSE__EXITED, 500);
        m.busy = false;
        assert_int_equal(join(ranked(4, 3, 1), 600), 0);
        assert_false(membership_remove(&m, 4, WIRE__CAUSE__EXITED, 700));
        assert_int_equal(membership_vacant(&m), 2);
        assert_int_equal(membership_deadline(&m), 10 + GRACE);
        assert_int_equal(tick(10 + GRACE), MEMBERSHIP_NOTHING); /* the other place is still kept */
        assert_int_equal(tick(500 + GRACE), MEMBERSHIP_HAS_BROKEN);
}

static void a_successor_waits_no_longer_than_it_wants(void **state) {
        struct membership_request r = ranked(4, 3, 1);

        form(3, 3, true);
        membership_remove(&m, 2, WIRE__CAUSE__EXITED, 10);
        membership_remove(&m, 3, WIRE__CAUSE__EXITED, 10);
        m.busy = false;
        r.timeout = 50;
        assert_int_equal(join(r, 20), 0);
        assert_int_equal(tick(69), MEMBERSHIP_NOTHING);
        assert_int_equal(tick(70), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 4);
        assert_int_equal(refusal.code, WIRE__CODE__TIMEOUT);
        assert_int_equal(membership_vacant(&m), 2);
}

static void a_job_grows_between_steps(void **state) {
        struct membership_request late;

        form_late(2, 4);
        assert_int_equal(join(request(3, 2, 4), 10), 0);
        late = request(4, 2, 4);
        late.timeout = 50;
        assert_int_equal(join(late, 10), 0);
        assert_int_equal(join(request(5, 2, 4), 10), WIRE__CODE__JOB_FULL);
        assert_int_equal(m.n, 2);
        assert_int_equal(tick(20), MEMBERSHIP_NOTHING); /* a step is open */
        assert_int_equal(membership_deadline(&m), 60);
        assert_int_equal(tick(60), MEMBERSHIP_EXPIRED);
        assert_int_equal(gone, 4);
        m.boundary = true;
        assert_int_equal(tick(70), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(m.n, 3);
        assert_int_equal(m.generation, 2);
        assert_int_equal(membership_find(&m, 3)->rank, 2);
        assert_int_equal(membership_find(&m, 3)->slot, 2);
        assert_int_equal(m.loss.pid, 0);
}

static void who_waits_takes_a_place_that_becomes_vacant(void **state) {
        form_late(2, 3);
        assert_int_equal(join(request(3, 2, 3), 10), 0);
        assert_true(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 20));
        assert_int_equal(membership_vacant(&m), 0);
        m.busy = false;
        assert_int_equal(tick(20), MEMBERSHIP_HAS_FORMED);
        assert_int_equal(membership_find(&m, 3)->rank, 0);
        assert_int_equal(membership_find(&m, 3)->id, 1);
        assert_int_equal(m.n, 2);
}

static void fresh_members_alone_do_not_hold_the_job(void **state) {
        form(2, 2, true);
        membership_remove(&m, 1, WIRE__CAUSE__EXITED, 0);
        assert_int_equal(join(ranked(3, 2, 0), 0), 0);
        assert_false(membership_remove(&m, 2, WIRE__CAUSE__EXITED, 0));
        m.busy = false;
        assert_int_equal(tick(0), MEMBERSHIP_HAS_BROKEN);
}

static void one_that_does_not_adapt_ends_the_job(void **state) {
        struct membership_request old = request(2, 2, 3);

        membership_init(&m, "j", 0);
        old.adapts = false;
        assert_int_equal(join(request(1, 2, 3), 0), 0);
        assert_int_equal(join(old, 0), 0);
        assert_int_equal(join(request(3, 2, 3), 0), 0);
        assert_int_equal(tick(0), MEMBERSHIP_HAS_FORMED);
        assert_true(membership_remove(&m, 1, WIRE__CAUSE__EXITED, 0));
        assert_int_equal(m.state, MEMBERSHIP_BROKEN);
}

/* ---- random lives ---- */

struct life {
        uint32_t min, max, generation, n;
        uint64_t next, now;
        uint64_t rank[LIMIT_LOCAL], id[LIMIT_LOCAL]; /* member and its id by rank, of the last generation */
        unsigned formed, closed, grown, broken, spared;
};

/* Whether all places of the last generation are those of this one. */
static bool same_places(const struct life *life) {
        uint32_t found = 0;

        for (uint32_t i = 0; i < m.n; i++)
                for (uint32_t j = 0; j < life->n; j++)
                        found += m.seat[i].id == life->id[j];
        return m.n == life->n && found == m.n;
}

static bool was_member(const struct life *life, uint64_t member) {
        for (uint32_t i = 0; i < life->n; i++)
                if (life->rank[i] == member)
                        return true;
        return false;
}

/* What every generation must be, and what it must have of the one before. */
static void check_generation(struct life *life) {
        uint32_t survivors = 0, at = 0;

        assert_int_equal(m.generation, life->generation + 1);
        assert_in_range(m.n, life->min, life->max);
        assert_int_equal(membership_vacant(&m), 0);
        for (uint32_t i = 0; i < m.n; i++) {
                const struct seat *member = &m.seat[i];

                assert_int_equal(member->rank, i);
                assert_int_equal(member->state, SEAT_HELD);
                if (member->request.has_rank)
                        assert_int_equal(member->request.rank, i);
                for (uint32_t j = 0; j < i; j++) {
                        assert_int_not_equal(m.seat[j].request.member, member->request.member);
                        assert_int_not_equal(m.seat[j].id, member->id);
                }
                if (!was_member(life, member->request.member)) {
                        life->spared += life->generation > 0 && member->request.spare;
                        continue;
                }
                survivors++;
                while (life->rank[at] != member->request.member)
                        assert_true(++at < life->n); /* those who stay keep their order */
                if (same_places(life))
                        assert_int_equal(at, i); /* and their ranks, if all places are taken again */
        }
        assert_true(life->generation == 0 || survivors > 0);
        for (uint32_t i = 0; i < m.n && same_places(life); i++)
                assert_int_equal(m.seat[i].id, life->id[i]);
        life->closed += life->generation > 0 && m.n < life->n;
        life->grown += life->generation > 0 && m.n > life->n;
        life->formed++;
        life->generation = m.generation;
        life->n = m.n;
        for (uint32_t i = 0; i < m.n; i++)
                life->rank[i] = m.seat[i].request.member, life->id[i] = m.seat[i].id;
}

static void let_time_pass(struct life *life) {
        enum membership_event event;

        while ((event = tick(life->now)) != MEMBERSHIP_NOTHING) {
                if (event == MEMBERSHIP_HAS_FORMED)
                        check_generation(life);
                life->broken += event == MEMBERSHIP_HAS_BROKEN;
        }
        if (m.state == MEMBERSHIP_REPLACING)
                assert_true(membership_vacant(&m) == 0 || m.n_waiting == 0); /* nobody waits beside a place */
        if (m.state == MEMBERSHIP_FORMED && m.boundary)
                assert_int_equal(membership_fitting(&m), 0);
        for (uint32_t i = m.n; i < m.n + m.n_waiting; i++)
                assert_true(m.seat[i].state == SEAT_WAITING &&
                            membership_waits(&m, m.seat[i].request.member));
}

static void event_of(struct life *life) {
        struct membership_request r = request(++life->next, life->min, life->max);

        r.spare = rand() % 4 == 0;
        r.has_rank = !r.spare && life->min == life->max && rand() % 2 == 0;
        r.rank = (uint32_t)rand() % life->max;
        r.timeout = rand() % 3 == 0 ? (uint64_t)(rand() % 300) + 1 : 0;
        r.last_call = 5;
        switch (rand() % 4) {
        case 0:
                if (m.n + m.n_waiting > 0)
                        membership_remove(&m, m.seat[(uint32_t)rand() % (m.n + m.n_waiting)].request.member,
                                          rand() % 5 == 0 ? WIRE__CAUSE__LEAVING : WIRE__CAUSE__EXITED,
                                          life->now);
                break;
        case 1:
                m.busy = false;
                m.boundary = rand() % 2 == 0;
                break;
        case 2: life->now += (uint64_t)(rand() % 400); break;
        default: membership_join(&m, &r, life->now, &refusal);
        }
}

static void live(unsigned seed, struct life *life) {
        *life = (struct life){ .max = 1 + seed % 6,
                               .formed = life->formed,
                               .closed = life->closed,
                               .grown = life->grown,
                               .broken = life->broken,
                               .spared = life->spared };
        life->min = 1 + seed / 6 % life->max;
        srand(seed);
        membership_init(&m, "j", 0);
        for (unsigned i = 0; i < 200 && m.state != MEMBERSHIP_BROKEN; i++) {
                event_of(life);
                let_time_pass(life);
        }
        m.busy = false;
        life->now = UINT64_MAX - 1;
        let_time_pass(life);
        assert_int_not_equal(m.state, MEMBERSHIP_REPLACING); /* every wait ends */
}

static void random_lives(void **state) {
        struct life life = { 0 };

        for (unsigned seed = 0; seed < 20000; seed++)
                live(seed, &life);
        assert_true(life.formed > 30000); /* else the lives were too dull to prove anything */
        assert_true(life.closed > 1000);
        assert_true(life.grown > 1000);
        assert_true(life.broken > 1000);
        assert_true(life.spared > 1000);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_successor_inherits_rank_and_id),
                cmocka_unit_test(a_newer_process_that_asks_for_another_rank_gets_that),
                cmocka_unit_test(places_that_are_not_vacant_are_refused),
                cmocka_unit_test(who_asks_for_no_rank_gets_the_first_vacant_place),
                cmocka_unit_test(nobody_comes_and_ranks_are_closed),
                cmocka_unit_test(asked_ranks_fix_the_size),
                cmocka_unit_test(who_leaves_takes_the_place_along),
                cmocka_unit_test(who_leaves_after_a_loss_takes_the_place_along_too),
                cmocka_unit_test(a_successor_that_dies_leaves_the_place_vacant_as_long_as_it_was_kept),
                cmocka_unit_test(a_successor_waits_no_longer_than_it_wants),
                cmocka_unit_test(a_job_grows_between_steps),
                cmocka_unit_test(who_waits_takes_a_place_that_becomes_vacant),
                cmocka_unit_test(fresh_members_alone_do_not_hold_the_job),
                cmocka_unit_test(one_that_does_not_adapt_ends_the_job),
                cmocka_unit_test(random_lives),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
