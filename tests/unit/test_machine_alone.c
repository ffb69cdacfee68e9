/* SPDX-License-Identifier: Apache-2.0 */
/* A job on one node forms, loses somebody, turns somebody away and ends, without a tick and with the right
 * words. */
#include "alone_fixture.h"

static void a_world_forms_and_steps_without_a_tick(void **state) {
        form(3, 3, 3);
        open_unit(TRACK_STEP + 4);
        assert_int_equal(latest(ACTION_OPEN)->track, TRACK_STEP + 4);
        node_full(&node, now, node.generation, TRACK_STEP + 4);
        assert_null(latest(ACTION_COMMITTED)); /* the results are not there */
        node_landed(&node, now, node.generation, TRACK_STEP + 4);
        assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        assert_int_equal(node.member[0].tag.step, 2); /* of the job */
}

static void single_tick_makes_the_generation(void **state) {
        start();
        join(request(1, 1, 2));
        now = membership_deadline(&coordinator.membership);
        coordinator_tick(&coordinator, now);
        pull();
        assert_true(has_order);
        assert_int_equal(command.kind, ORDER_NEWGEN);
}

static void a_loss_is_told_with_its_cause(void **state) {
        const struct action *action;

        form(3, 3, 3);
        open_unit(TRACK_STEP);
        open_unit(TRACK_OPERATION);
        lose(2, WIRE__CAUSE__EVICTED);
        action = latest(ACTION_INTERRUPTED);
        assert_non_null(action);
        assert_int_equal(action->loss.member, 2);
        assert_int_equal(action->loss.pid, 102);
        assert_int_equal(action->loss.rank, 1);
        assert_int_equal(action->loss.cause, WIRE__CAUSE__EVICTED);
        assert_int_equal(action->end, JOB_END_NONE);
        assert_int_equal(count(ACTION_CANCEL), 2);
        assert_null(latest(ACTION_VOID));
        quiet(TRACK_STEP);
        quiet(TRACK_OPERATION);
        assert_int_equal(count(ACTION_VOID), 2);
        assert_int_equal(latest(ACTION_VOID)->loss.cause, WIRE__CAUSE__EVICTED);
        lose(3, WIRE__CAUSE__CLOSED); /* one more; the first one counts */
        join(request(4, 3, 3));
        assert_null(latest(ACTION_GENERATION));
        join(request(5, 3, 3));
        assert_int_equal(count(ACTION_GENERATION), 3);
        assert_int_equal(latest(ACTION_GENERATION)->loss.member, 2);
        assert_int_equal(count(ACTION_INTERRUPTED), 1);
        assert_int_equal(count(ACTION_BUILD), 0); /* the same communicator */
        forget();
        lose(4, WIRE__CAUSE__EXITED);
        assert_int_equal(latest(ACTION_INTERRUPTED)->loss.member, 4);
}

static void places_keep_their_ids(void **state) {
        form(2, 2, 2);
        lose(1, WIRE__CAUSE__EXITED);
        join(request(9, 2, 2));
        for (unsigned i = 0; i < n_acted; i++)
                if (acted[i].kind == ACTION_GENERATION && acted[i].member == 9) {
                        assert_int_equal(acted[i].id, 1);
                        assert_int_equal(acted[i].rank, 0);
                        return;
                }
        fail();
}

static void who_is_lost_for_good_ends_the_job(void **state) {
        struct membership_request fixed = request(1, 2, 2);

        start();
        fixed.adapts = false;
        join(fixed);
        fixed.member = 2;
        join(fixed);
        build();
        lose(2, WIRE__CAUSE__CLOSED);
        assert_int_equal(latest(ACTION_INTERRUPTED)->end, JOB_END_TOO_FEW);
        node_aborted(&node, now, node.comm);
        pump();
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_TOO_FEW);
        assert_int_equal(latest(ACTION_ENDED)->loss.member, 2);
        assert_int_equal(latest(ACTION_ENDED)->loss.cause, WIRE__CAUSE__CLOSED);
        join(request(3, 2, 2));
        assert_int_equal(latest(ACTION_REFUSED)->end, JOB_END_TOO_FEW);
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "pid 103"));
}

static void refusals_say_why(void **state) {
        struct membership_request waits = request(4, 1, 2), twin = request(5, 2, 2);

        form(2, 2, 2);
        join(request(3, 2, 2));
        assert_int_equal(latest(ACTION_REFUSED)->end, JOB_END_REFUSED);
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "job 'j' has formed with 2 members"));

        start();
        waits.min_world = 2;
        waits.timeout = SECOND;
        join(waits);
        now = membership_deadline(&coordinator.membership);
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(latest(ACTION_REFUSED)->member, 4);
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "did not form within 1.0 s"));

        start();
        twin.identity = 77;
        twin.instance = 1;
        join(twin);
        join(request(6, 2, 2));
        build();
        twin.member = 7;
        twin.pid = 107;
        twin.instance = 2;
        join(twin);
        assert_int_equal(latest(ACTION_REFUSED)->member, 5);
        assert_int_equal(latest(ACTION_REFUSED)->end, JOB_END_FENCED);
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "pid 105"));
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "pid 107"));
        assert_int_equal(latest(ACTION_INTERRUPTED)->loss.cause, WIRE__CAUSE__SUPERSEDED);
        assert_int_equal(count(ACTION_GENERATION), 4);
}

/* Said again, when the one that was said first did not arrive, and its text is no longer kept. */
static void a_refusal_said_again_has_a_text(void **state) {
        form(1, 1, 1);
        for (uint64_t id = 2; id < 2 + 2 * LIMIT_REFUSALS; id++) {
                struct membership_request other = request(id, 1, 1);

                node_join(&node, now, &other, &(struct tag){ 0 });
        }
        pull();
        has_answer = false;
        coordinator_receive(&coordinator, now, &answer);
        pull();
        n_refusals = 0;
        node_tick(&node, now + NEVER + 1);
        pump();
        assert_int_equal(count(ACTION_REFUSED), 2 * LIMIT_REFUSALS);
        for (unsigned i = 0; i < n_acted; i++)
                if (acted[i].kind == ACTION_REFUSED)
                        assert_true(strlen(texts[i]) > 10);
}

static void who_says_goodbye_is_let_go(void **state) {
        form(2, 1, 2);
        node_leave(&node, now, 2);
        pump();
        assert_int_equal(latest(ACTION_REFUSED)->end, JOB_END_NONE);
        assert_int_equal(latest(ACTION_INTERRUPTED)->loss.cause, WIRE__CAUSE__LEAVING);
        assert_int_equal(latest(ACTION_GENERATION)->world, 1); /* nobody waits for it */
}

static void the_whole_job_ends_after_a_verdict(void **state) {
        form(2, 2, 2);
        open_unit(TRACK_STEP);
        open_unit(TRACK_STEP + 1);
        node_full(&node, now, node.generation, TRACK_STEP + 1);
        node_end(&node, now, WIRE__CAUSE__SHUTDOWN);
        pump();
        assert_int_equal(latest(ACTION_INTERRUPTED)->end, JOB_END_ENDED);
        assert_int_equal(latest(ACTION_INTERRUPTED)->loss.cause, WIRE__CAUSE__SHUTDOWN);
        quiet(TRACK_STEP);
        assert_null(latest(ACTION_ENDED));
        node_landed(&node, now, node.generation, TRACK_STEP + 1);
        pump();
        node_aborted(&node, now, node.comm);
        pump();
        assert_int_equal(latest(ACTION_COMMITTED)->track, TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_VOID)->track, TRACK_STEP);
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_ENDED);
        assert_int_equal(latest(ACTION_ENDED)->loss.cause, WIRE__CAUSE__SHUTDOWN);
        assert_int_equal(latest(ACTION_ENDED)->loss.member, 0);
}

static void a_job_that_forms_ends_at_once(void **state) {
        start();
        join(request(1, 2, 2));
        node_end(&node, now, WIRE__CAUSE__SUPERSEDED);
        pump();
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_ENDED);
        assert_int_equal(latest(ACTION_ENDED)->loss.cause, WIRE__CAUSE__SUPERSEDED);
}

static void nothing_is_made_while_the_node_waits(void **state) {
        form(2, 1, 2);
        node_wait(&node, now, true);
        lose(1, WIRE__CAUSE__EXITED);
        assert_non_null(latest(ACTION_INTERRUPTED));
        now += 3 * SECOND;
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(node.phase, NODE_SETTLED);
        node_wait(&node, now, false);
        pump();
        assert_int_equal(latest(ACTION_GENERATION)->world, 1);
}

static void nobody_is_turned_away_while_the_node_waits(void **state) {
        struct membership_request waits = request(1, 2, 2);

        start();
        waits.timeout = SECOND;
        node_wait(&node, now, true);
        join(waits);
        now += 2 * SECOND;
        coordinator_tick(&coordinator, now);
        pump();
        assert_null(latest(ACTION_REFUSED));
        join(request(2, 2, 2));
        assert_null(latest(ACTION_BUILD));
        node_wait(&node, now, false);
        pump();
        assert_non_null(latest(ACTION_BUILD));
}

/* Whatever there is no room for is refused or dropped; with more room it goes on. */
static void machines_move_between_two_calls(void **state) {
        struct message larger;

        start();
        move_machines(2, TRACK_STEP + 1);
        join(request(1, 2, 4));
        join(request(2, 2, 4));
        join(request(3, 2, 4));
        assert_int_equal(latest(ACTION_REFUSED)->member, 3);
        assert_non_null(strstr(text_of(latest(ACTION_REFUSED)), "has 2 members"));
        move_machines(5, TRACK_STEP + 1);
        join(request(4, 2, 4));
        assert_null(latest(ACTION_BUILD));
        join(request(5, 2, 4));
        assert_int_equal(count(ACTION_REFUSED), 1);
        build();
        assert_int_equal(count(ACTION_GENERATION), 4);
        open_unit(TRACK_STEP);
        assert_false(node_open(&node, now, node.generation, TRACK_STEP + 1, planned));
        larger = answer;
        larger.n_tracks = TRACK_STEP + 2;
        larger.stamp += SECOND;
        coordinator_receive(&coordinator, now, &larger);
        assert_int_equal(coordinator.n_tracks, TRACK_STEP + 1);
        move_machines(5, TRACK_STEP + 2);
        open_unit(TRACK_STEP + 1);
        commit(TRACK_STEP);
        move_machines(6, TRACK_STEP + 3);
        lose(2, WIRE__CAUSE__EXITED);
        assert_int_equal(latest(ACTION_COMMITTED)->track, TRACK_STEP);
        assert_int_equal(latest(ACTION_CANCEL)->track, TRACK_STEP + 1);
        move_machines(7, TRACK_STEP + 4);
        quiet(TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_VOID)->track, TRACK_STEP + 1);
        move_machines(8, TRACK_STEP + 5);
        join(request(7, 2, 4));
        assert_int_equal(count(ACTION_GENERATION), 8);
        assert_int_equal(latest(ACTION_GENERATION)->loss.member, 2);
        assert_int_equal(latest(ACTION_GENERATION)->number, 1);
}

/* Without room for the tracks of a generation a node does not enter it; anything else it hears. */
static void a_node_without_room_for_tracks_is_not_deaf(void **state) {
        struct message order;

        start();
        move_machines(2, TRACK_STEP + 1);
        join(request(1, 2, 2));
        join(request(2, 2, 2));
        build();
        lose(2, WIRE__CAUSE__EXITED);
        assert_int_equal(node.phase, NODE_SETTLED);
        order = command;
        order.n_tracks = TRACK_STEP + 2;
        memset(order.mark, 0, sizeof(order.mark));
        order.kind = ORDER_NEWGEN;
        order.generation.number++;
        order.round++;
        order.world = 1;
        node_receive(&node, now, &order);
        assert_int_equal(node.phase, NODE_SETTLED);
        order.kind = ORDER_END;
        order.round++;
        node_receive(&node, now, &order);
        assert_int_equal(node.phase, NODE_ENDED);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_world_forms_and_steps_without_a_tick),
                cmocka_unit_test(single_tick_makes_the_generation),
                cmocka_unit_test(a_loss_is_told_with_its_cause),
                cmocka_unit_test(places_keep_their_ids),
                cmocka_unit_test(who_is_lost_for_good_ends_the_job),
                cmocka_unit_test(refusals_say_why),
                cmocka_unit_test(a_refusal_said_again_has_a_text),
                cmocka_unit_test(who_says_goodbye_is_let_go),
                cmocka_unit_test(the_whole_job_ends_after_a_verdict),
                cmocka_unit_test(a_job_that_forms_ends_at_once),
                cmocka_unit_test(nothing_is_made_while_the_node_waits),
                cmocka_unit_test(nobody_is_turned_away_while_the_node_waits),
                cmocka_unit_test(machines_move_between_two_calls),
                cmocka_unit_test(a_node_without_room_for_tracks_is_not_deaf),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
