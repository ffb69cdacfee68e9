/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and operations of a job on one node: growth between them, spoilt results, mismatches; and a job that
 * is taken back. */
#include "alone_fixture.h"

/* Of several members that have the newest state the others take that of the lowest rank. The bug planted: the
 * highest. */
static void the_lowest_rank_that_has_the_state_gives_it(void **state) {
        start();
        for (uint64_t id = 1; id <= 3; id++)
                join(request(id, 3, 3));
        build();
        assert_int_equal(latest(ACTION_GENERATION)->source, 0); /* nobody has one */
        form(3, 3, 3);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        lose(1, WIRE__CAUSE__EXITED);
        join(request(4, 3, 3));
        assert_int_equal(latest(ACTION_GENERATION)->number, 1);
        assert_int_equal(latest(ACTION_GENERATION)->world, 3);
        assert_int_equal(latest(ACTION_GENERATION)->source, 1);
}

/* A step that is open may need another one before it can become full. */
static void the_world_grows_when_all_is_quiet(void **state) {
        form(1, 1, 2);
        open_unit(TRACK_STEP);
        join(request(2, 1, 2));
        assert_int_equal(coordinator_order(&coordinator), ORDER_STOP);
        open_unit(TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_OPEN)->track, TRACK_STEP + 1);
        assert_int_equal(coordinator.stop[TRACK_STEP + 1], 1);
        open_unit(TRACK_OPERATION);
        commit(TRACK_OPERATION);
        commit(TRACK_STEP + 1);
        node_full(&node, now, node.generation, TRACK_STEP);
        open_unit(TRACK_STEP + 1); /* nothing needs it any more */
        assert_int_equal(node.track[TRACK_STEP + 1].state, UNIT_WANTED);
        node_landed(&node, now, node.generation, TRACK_STEP);
        pump();
        quiet(TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_GENERATION)->world, 2);
        assert_int_equal(latest(ACTION_GENERATION)->number, 2);
        assert_int_equal(latest(ACTION_GENERATION)->loss.cause, 0);
        assert_null(latest(ACTION_INTERRUPTED));
        assert_null(latest(ACTION_VOID)); /* it was never open */
}

static void what_is_spoilt_is_void(void **state) {
        for (unsigned late = 0; late < 3; late++) {
                form(2, 1, 2);
                open_unit(TRACK_STEP);
                if (late > 0)
                        node_full(&node, now, node.generation, TRACK_STEP);
                if (late == 2)
                        lose(2, WIRE__CAUSE__EXITED); /* another reason; it stands to be committed */
                assert_int_equal(node.phase, late == 2 ? NODE_SETTLING : NODE_RUNNING);
                node_spoil(&node, now, node.generation, TRACK_STEP);
                node_full(&node, now, node.generation, TRACK_STEP);
                assert_null(latest(ACTION_COMMITTED));
                lose(late == 2 ? 1 : 2, WIRE__CAUSE__EVICTED);
                quiet(TRACK_STEP);
                assert_int_equal(latest(ACTION_VOID)->number, 1);
                assert_int_equal(node.track[TRACK_STEP].committed, 0);
                join(request(3, 1, 2));
                if (late == 2)
                        continue;
                assert_int_equal(latest(ACTION_GENERATION)->number, 0);
                open_unit(TRACK_STEP);
                commit(TRACK_STEP);
                assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        }
}

/* Between FREEZE and its verdict, which was to commit. */
static void what_is_spoilt_before_the_verdict_is_void(void **state) {
        form(2, 1, 2);
        open_unit(TRACK_STEP);
        node_full(&node, now, node.generation, TRACK_STEP);
        node_lose(&node, now, 2, WIRE__CAUSE__EXITED);
        pull();
        while (node.phase != NODE_FROZEN) {
                has_answer = false;
                coordinator_receive(&coordinator, now, &answer);
                pull();
                has_order = false;
                node_receive(&node, now, &command);
                pull();
        }
        has_answer = false;
        coordinator_receive(&coordinator, now, &answer);
        assert_int_equal(coordinator.verdict[TRACK_STEP], 1);
        node_spoil(&node, now, node.generation, TRACK_STEP);
        pump();
        quiet(TRACK_STEP);
        assert_int_equal(latest(ACTION_VOID)->number, 1);
        join(request(3, 1, 2));
        assert_int_equal(latest(ACTION_GENERATION)->number, 0);
}

static void operations_that_differ_here_are_a_mismatch(void **state) {
        form(2, 2, 2);
        open_unit(TRACK_OPERATION);
        node_differ(&node, now, node.generation, TRACK_OPERATION);
        node_full(&node, now, node.generation, TRACK_OPERATION);
        assert_null(latest(ACTION_MISMATCH));
        assert_int_equal(count(ACTION_CANCEL), 1);
        quiet(TRACK_OPERATION);
        assert_int_equal(latest(ACTION_MISMATCH)->number, 1);
        open_unit(TRACK_OPERATION);
        commit(TRACK_OPERATION);
        assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        node_differ(&node, now, node.generation, TRACK_STEP);
        assert_int_equal(count(ACTION_CANCEL), 1);
}

/* A member that takes the state by operations of its own is no longer behind when the node is told so. */
static void who_was_behind_has_the_state_before_its_first_step(void **state) {
        struct tag tag;

        form(2, 2, 2);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        lose(2, WIRE__CAUSE__EXITED);
        join(request(3, 2, 2));
        assert_true(node.member[1].behind);
        open_unit(TRACK_STEP);
        tag = node.member[0].tag;
        node_synced(&node, 3, &tag);
        commit(TRACK_STEP);
        assert_int_equal(tag_compare(&node.member[0].tag, &node.member[1].tag), 0);
        forget();
        lose(1, WIRE__CAUSE__EXITED); /* the other one's state is as good */
        join(request(4, 2, 2));
        assert_int_equal(count(ACTION_GENERATION), 2);
}

/* A run of the daemon after another one, which has left a job of `world` members, in generation 41, after
 * step 9 of the first plan. */
static struct message words;

static void expect(uint32_t world, bool opened) {
        start();
        node_wait(&node, now, true);
        node_expect(&node, now);
        pump();
        assert_int_equal(coordinator.stage, STAGE_HEARING);
        message_clear(&words);
        words.generation.number = 41;
        words.world = world;
        words.n_tracks = TRACK_STEP + 1;
        words.committed[TRACK_OPERATION] = words.mark[TRACK_OPERATION] = words.prepared[TRACK_OPERATION] = 0;
        words.committed[TRACK_STEP] = words.prepared[TRACK_STEP] = 9;
        words.mark[TRACK_STEP] = 9 + opened;
        words.history = (struct tag){ .incarnation = 1, .generation = 41, .step = 9 };
}

static void come_back(uint64_t id, uint32_t rank, uint64_t step) {
        words.member_of[words.n_members++] =
                (struct message_member){ .request = request(id, 1, words.world),
                                         .rank = rank,
                                         .slot = rank,
                                         .id = 50 + rank,
                                         .in = true,
                                         .tag = { .incarnation = 1, .generation = 41, .step = step } };
}

static void restore(void) {
        node_restore(&node, now, &words);
        pump();
}

static void let_go(void) {
        node_wait(&node, now, false);
        pump();
        coordinator_tick(&coordinator, now);
        pump();
        build();
}

static void a_job_is_taken_back(void **state) {
        expect(2, false);
        come_back(1, 0, 9);
        come_back(2, 1, 9);
        restore();
        assert_int_equal(node.phase, NODE_SETTLED);
        assert_null(latest(ACTION_GENERATION));
        let_go();
        assert_null(latest(ACTION_VOID));
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->generation.number, 42);
        assert_int_equal(latest(ACTION_GENERATION)->id, 51);
        assert_int_equal(latest(ACTION_GENERATION)->number, 9);
        assert_int_equal(latest(ACTION_GENERATION)->behind, false);
        assert_int_equal(latest(ACTION_GENERATION)->loss.cause, WIRE__CAUSE__RESTARTED);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        assert_int_equal(node.member[0].tag.step, 10);
}

static void a_step_that_was_open_is_void_or_committed(void **state) {
        for (unsigned prepared = 0; prepared < 2; prepared++) {
                expect(1, true);
                words.prepared[TRACK_STEP] += prepared;
                come_back(1, 0, 9);
                restore();
                if (!prepared)
                        quiet(TRACK_STEP);
                let_go();
                assert_int_equal(count(ACTION_COMMITTED), prepared);
                assert_int_equal(count(ACTION_VOID), !prepared);
                assert_int_equal(latest(ACTION_GENERATION)->number, 9 + prepared);
        }
}

static void a_member_that_does_not_come_back_is_waited_for(void **state) {
        expect(3, false);
        come_back(1, 0, 9);
        come_back(2, 2, 8); /* it missed the last step */
        restore();
        let_go();
        assert_null(latest(ACTION_GENERATION));
        now = membership_deadline(&coordinator.membership);
        assert_int_equal(now, NOW + SECOND); /* the grace */
        let_go();
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->world, 2);
        assert_int_equal(latest(ACTION_GENERATION)->behind, true);
}

static void a_member_that_comes_back_may_be_lost_again(void **state) {
        expect(2, false);
        come_back(1, 0, 9);
        come_back(2, 1, 9);
        restore();
        lose(2, WIRE__CAUSE__EXITED);
        let_go();
        assert_null(latest(ACTION_GENERATION));
        join(request(3, 1, 2));
        let_go();
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->member, 3);
        assert_int_equal(latest(ACTION_GENERATION)->behind, true);
}

/* Whoever comes first waits until it is known who belongs to the job; one that comes back late gets its own
 * place. */
static void a_newcomer_waits_for_those_on_their_way(void **state) {
        struct membership_request late = request(7, 1, 2);

        expect(2, false);
        join(request(5, 1, 2));
        assert_int_equal(coordinator.stage, STAGE_HEARING);
        come_back(1, 1, 9);
        restore();
        let_go();
        assert_int_equal(count(ACTION_GENERATION), 2); /* the newcomer has the place of rank 0 */
        assert_int_equal(latest(ACTION_ENTERED)->world, 2);
        expect(2, false);
        come_back(1, 0, 9);
        restore();
        late.returns = true;
        late.rank = 1;
        node_join(&node, now, &late, &words.history);
        pump();
        let_go();
        assert_int_equal(latest(ACTION_GENERATION)->member, 7);
        assert_int_equal(latest(ACTION_GENERATION)->rank, 1);
        assert_false(latest(ACTION_GENERATION)->behind);
}

static void nobody_comes_back(void **state) {
        expect(2, false);
        join(request(5, 1, 2));
        restore();
        assert_int_equal(latest(ACTION_INTERRUPTED) != NULL, true);
        let_go();
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_TOO_FEW);
        expect(2, false);
        node_end(&node, now, WIRE__CAUSE__SHUTDOWN);
        pump();
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_ENDED);
        assert_int_equal(latest(ACTION_ENDED)->loss.cause, WIRE__CAUSE__SHUTDOWN);
}

static uint32_t seed = 1;

static uint32_t rnd(uint32_t below) {
        seed = seed * 1664525u + 1013904223u;
        return (seed >> 8) % below;
}

/* What the caller would do next with that unit; false: nothing. */
static bool carry_on(uint32_t track) {
        switch (node.track[track].state) {
        case UNIT_OPEN:
                if (node.phase != NODE_RUNNING || node.missing || node.track[track].spoilt)
                        return false;
                node_full(&node, now, node.generation, track);
                break;
        case UNIT_COMMITTING: node_landed(&node, now, node.generation, track); break;
        case UNIT_VOIDING: node_quiet(&node, now, node.generation, track); break;
        default: return false;
        }
        pump();
        return true;
}

static void move(uint64_t *next) {
        uint32_t track = rnd(3), some = node.n > 0 ? rnd(node.n) : 0;

        switch (rnd(14)) {
        case 0: join(request(++*next, 1, 3)); break;
        case 1:
                if (node.n > 1)
                        lose(node.member[some].request.member, WIRE__CAUSE__EXITED);
                break;
        case 2:
                if (node.n > 1) {
                        node_leave(&node, now, node.member[some].request.member);
                        pump();
                }
                break;
        case 3:
                if (node.n < 2 || !node.member[some].in || node.track[track].state == UNIT_IDLE)
                        break; /* who takes memory away has given some */
                node_spoil(&node, now, node.generation, track);
                lose(node.member[some].request.member, WIRE__CAUSE__EVICTED);
                break;
        case 4:
                node_differ(&node, now, node.generation, TRACK_OPERATION);
                pump();
                break;
        case 5:
                node_wait(&node, now, !node.wait);
                pump();
                break;
        case 6:
                now += rnd(SECOND);
                coordinator_tick(&coordinator, now);
                pump();
                break;
        default:
                if (!carry_on(track) && node_open(&node, now, node.generation, track, planned))
                        pump();
        }
        build();
        forget();
}

/* Everything that was begun comes to an end, and waits only for the time of the membership. */
static void whatever_happens_comes_to_an_end(void **state) {
        unsigned ended = 0;

        for (unsigned run = 0; run < 2000; run++) {
                uint64_t next = 2;
                bool going = true;

                form(2, 1, 3);
                for (unsigned i = rnd(60); i > 0; i--)
                        move(&next);
                node_wait(&node, now, false);
                pump();
                for (unsigned i = 0; going; i++) {
                        assert_true(i < 100);
                        now += SECOND;
                        coordinator_tick(&coordinator, now);
                        pump();
                        build();
                        going = carry_on(0) || carry_on(1) || carry_on(2);
                        forget();
                }
                now += SECOND;
                coordinator_tick(&coordinator, now);
                pump();
                build();
                if (coordinator_order(&coordinator) ==
                    ORDER_END) { /* nobody is left who was there before, or has the state */
                        assert_true(coordinator.end == JOB_END_TOO_FEW ||
                                    coordinator.end == JOB_END_NO_STATE);
                        assert_int_equal(node.phase, NODE_ENDED);
                        ended++;
                        continue;
                }
                assert_int_equal(node.phase, NODE_RUNNING);
                assert_int_equal(coordinator_order(&coordinator), ORDER_RUN);
                assert_int_equal(coordinator.membership.n, node.n);
                assert_int_equal(coordinator.membership.n_waiting, 0);
        }
        assert_in_range(ended, 1, 1000);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_lowest_rank_that_has_the_state_gives_it),
                cmocka_unit_test(the_world_grows_when_all_is_quiet),
                cmocka_unit_test(what_is_spoilt_is_void),
                cmocka_unit_test(what_is_spoilt_before_the_verdict_is_void),
                cmocka_unit_test(operations_that_differ_here_are_a_mismatch),
                cmocka_unit_test(who_was_behind_has_the_state_before_its_first_step),
                cmocka_unit_test(a_job_is_taken_back),
                cmocka_unit_test(a_step_that_was_open_is_void_or_committed),
                cmocka_unit_test(a_member_that_does_not_come_back_is_waited_for),
                cmocka_unit_test(a_member_that_comes_back_may_be_lost_again),
                cmocka_unit_test(a_newcomer_waits_for_those_on_their_way),
                cmocka_unit_test(nobody_comes_back),
                cmocka_unit_test(whatever_happens_comes_to_an_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
