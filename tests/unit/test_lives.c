/* SPDX-License-Identifier: Apache-2.0 */
/* Random lives of memberships, checked against what must always hold, and a world of a thousand members.
 * Single cases are in scripts. */
#include "tests.h"

#include <stdlib.h>

#include "gradsync.pb-c.h"
#include "rendezvous/machine/message.h"

#define GRACE 1000

static struct seat room[LIMIT_LOCAL + 1];
static struct membership m = { .seat = room, .most = LIMIT_LOCAL };
static struct refusal refusal;
static uint64_t gone;

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

/* Checks a generation by itself, and against the one before. */
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
                if (member->request.has_slot && life->generation == 0)
                        assert_int_equal(member->request.slot, member->slot);
                for (uint32_t j = 0; j < i; j++) {
                        assert_int_not_equal(m.seat[j].request.member, member->request.member);
                        assert_int_not_equal(m.seat[j].id, member->id);
                        assert_int_not_equal(m.seat[j].slot, member->slot);
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

        while ((event = membership_tick(&m, life->now, &gone, &refusal)) != MEMBERSHIP_NOTHING) {
                if (event == MEMBERSHIP_HAS_FORMED)
                        check_generation(life);
                if (event == MEMBERSHIP_EXPIRED)
                        assert_int_equal(membership_find(&m, gone)->state, SEAT_REFUSED);
                life->broken += event == MEMBERSHIP_HAS_BROKEN;
        }
        if (m.state == MEMBERSHIP_REPLACING)
                assert_true(membership_vacant(&m) == 0 || m.n_waiting == 0); /* none waits beside a place */
        if (m.state == MEMBERSHIP_FORMED && m.boundary)
                assert_int_equal(membership_fitting(&m), 0);
        for (uint32_t i = m.n; i < m.n + m.n_waiting; i++)
                assert_int_equal(m.seat[i].state, SEAT_WAITING);
}

static void event_of(struct life *life) {
        struct membership_request r = { .member = ++life->next,
                                        .min_world = life->min,
                                        .max_world = life->max,
                                        .grace = GRACE,
                                        .last_call = 5 };

        r.spare = rand() % 4 == 0;
        r.has_slot = !r.spare && rand() % 4 == 0;
        r.slot = (uint32_t)rand() % life->max;
        r.has_rank = !r.spare && life->min == life->max && rand() % 2 == 0;
        r.rank = (uint32_t)rand() % life->max;
        r.timeout = rand() % 3 == 0 ? (uint64_t)(rand() % 300) + 1 : 0;
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

TEST_ALONE(random_lives) {
        struct life life = { 0 };

        for (unsigned seed = 0; seed < 20000; seed++)
                live(seed, &life);
        assert_true(life.formed > 30000); /* else the lives were too dull to prove anything */
        assert_true(life.closed > 1000);
        assert_true(life.grown > 1000);
        assert_true(life.broken > 1000);
        assert_true(life.spared > 1000);
}

/* On 40 hosts, some of them named out of turn. */
TEST_ALONE(a_world_on_many_hosts) {
        enum { WORLD = 40 * 6 };
        static struct seat seats[WORLD + 1];
        static struct membership large;

        large = (struct membership){ .seat = seats, .most = WORLD };
        membership_init(&large, "j", 0);
        for (uint32_t i = 0; i < WORLD; i++) {
                struct membership_request r = { .member = 1 + i,
                                                .host = i * 7 % 40,
                                                .min_world = WORLD,
                                                .max_world = WORLD,
                                                .grace = GRACE,
                                                .has_rank = true,
                                                .rank = (i * 13 + 5) % WORLD };

                assert_int_equal(membership_join(&large, &r, 0, &refusal), 0);
        }
        assert_int_equal(membership_tick(&large, 0, &gone, &refusal), MEMBERSHIP_HAS_FORMED);
        for (uint32_t i = 0; i < WORLD; i++) {
                const struct seat *seat = membership_find(&large, 1 + i);

                assert_int_equal(seat->rank, (i * 13 + 5) % WORLD);
                assert_true(seat->slot < 6);
                assert_ptr_equal(seat, &seats[seat->rank]);
                assert_int_equal(seat->id, 1 + seat->rank);
        }
        assert_true(membership_remove(&large, 200, WIRE__CAUSE__EXITED, 1));
        assert_int_equal(large.loss.rank, (199 * 13 + 5) % WORLD);
}

/* Nodes count their members each for itself, and anew in each run. */
TEST_ALONE(ids_of_members_differ) {
        const uint64_t a = member_id(0, 1, 7), b = member_id(1, 1, 7), again = member_id(1, 2, 7);

        assert_true(a != b && a != again && b != again);
        assert_true(member_id_count(a) == 7 && member_id_count(b) == 7 && member_id_count(again) == 7);
        assert_true(member_id(LIMIT_NODES - 1, 1, 1) != member_id(LIMIT_NODES - 2, 1, 1));
}
