/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node and coordinator of a job on one node, in one process: nothing is lost between them, nobody is ever silent, and nothing
 * but the waits of members depends on the time. What is delivered is the latest answer and the latest order.
 */
#include "unit.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "rendezvous/coordinator.h"
#include "rendezvous/node.h"

#define NEVER (UINT64_C(1) << 60)
#define NOW (UINT64_C(1) << 50)         /* 35 years after the start of the clock */
#define SECOND 1000000u
#define MAX_ACTED 128u

static struct node node;
static struct coordinator coordinator;
static struct reporter reporter;
static struct message answer, command, refusals[8];
static bool has_answer, has_order;
static unsigned n_refusals;
static struct action acted[MAX_ACTED];
static char texts[MAX_ACTED][sizeof(((struct refusal *)NULL)->text)];
static unsigned n_acted;
static uint64_t now;

static const struct machine_times times = { NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER };
static const uint64_t planned[LIMIT_LANES] = { 1 };

static void deliver_later(void *data, const struct message *message) {
        struct message *into = &answer;

        if (message->kind == ORDER_REFUSE) {
                assert_true(n_refusals < 8);
                into = &refusals[n_refusals++];
        } else if (message->kind < ANSWER_REPORT) {
                into = &command;
                has_order = true;
        } else {
                has_answer = true;
        }
        memcpy(into, message, message_bytes(message));
}

static void keep(void *data, const struct action *action) {
        assert_true(n_acted < MAX_ACTED);
        if (action->kind == ACTION_REFUSED)
                strcpy(texts[n_acted], action->refusal->text);
        acted[n_acted++] = *action;
}

static void pump(void) {
        while (has_answer || has_order || n_refusals > 0) {
                if (n_refusals > 0) {
                        struct message refusal = refusals[--n_refusals];

                        node_receive(&node, now, &refusal);
                } else if (has_order) {
                        has_order = false;
                        node_receive(&node, now, &command);
                } else {
                        has_answer = false;
                        coordinator_receive(&coordinator, now, &answer);
                }
        }
}

static void start(void) {
        struct outlet out = { .send = deliver_later, .act = keep };

        now = NOW;
        has_answer = has_order = false;
        n_refusals = n_acted = 0;
        node_init(&node, &(struct node_config){ .candidates = 1, .instance = 1, .n_lanes = 2, .window = 2, .incarnation = 1,
                                                .name = "j", .times = times }, now, &out);
        coordinator_init(&coordinator, &(struct coordinator_config){ .candidates = 1, .floor = 1, .nonce = 7, .incarnation = 1,
                                                                     .alone = true, .name = "j", .times = times,
                                                                     .node = &reporter, .n_nodes = 1 }, now, &out);
}

static struct membership_request request(uint64_t id, uint32_t least, uint32_t most) {
        return (struct membership_request){ .member = id, .pid = 100 + (int32_t)id, .min_world = least, .max_world = most,
                                            .adapts = true, .grace = SECOND, .last_call = SECOND, .incarnation = 1 };
}

static void join(struct membership_request request) {
        node_join(&node, now, &request, &(struct tag){ 0 });
        pump();
}

/* The latest action of that kind; NULL: none. */
static const struct action *latest(enum action_kind kind) {
        for (unsigned i = n_acted; i-- > 0;)
                if (acted[i].kind == kind)
                        return &acted[i];
        return NULL;
}

static unsigned count(enum action_kind kind) {
        unsigned n = 0;

        for (unsigned i = 0; i < n_acted; i++)
                n += acted[i].kind == kind;
        return n;
}

static const char *text_of(const struct action *action) {
        return texts[action - acted];
}

static void build(void) {
        const struct action *action = latest(ACTION_BUILD);

        if (action != NULL)
                node_built(&node, now, action->comm, 0);
        pump();
}

/* A world of that many members, 1 … n, which may grow. */
static void form(uint32_t n, uint32_t least, uint32_t most) {
        start();
        for (uint64_t id = 1; id <= n; id++)
                join(request(id, least, most));
        if (n < most) {
                now = membership_deadline(&coordinator.membership);
                coordinator_tick(&coordinator, now);
                pump();
        }
        build();
        assert_int_equal(node.phase, NODE_RUNNING);
        assert_int_equal(coordinator.order, ORDER_RUN);
        assert_int_equal(count(ACTION_GENERATION), n);
        n_acted = 0;
}

static void lose(uint64_t member, uint32_t cause) {
        node_lose(&node, now, member, cause);
        pump();
}

static void open_unit(uint32_t track) {
        assert_true(node_open(&node, now, node.generation, track, planned));
        pump();
}

static void commit(uint32_t track) {
        node_full(&node, now, node.generation, track);
        node_landed(&node, now, node.generation, track);
        pump();
}

static void quiet(uint32_t track) {
        node_quiet(&node, now, node.generation, track);
        pump();
}

static void a_world_forms_and_steps_without_a_tick(void **state) {
        form(3, 3, 3);
        open_unit(TRACK_STEP + 4);
        assert_int_equal(latest(ACTION_OPEN)->track, TRACK_STEP + 4);
        node_full(&node, now, node.generation, TRACK_STEP + 4);
        assert_null(latest(ACTION_COMMITTED));          /* the results are not there */
        node_landed(&node, now, node.generation, TRACK_STEP + 4);
        assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        assert_int_equal(latest(ACTION_COMMITTED)->number, 1);
        assert_int_equal(node.member[0].tag.step, 2);   /* of the job */
}

static void single_tick_makes_the_generation(void **state) {
        start();
        join(request(1, 1, 2));
        now = membership_deadline(&coordinator.membership);
        coordinator_tick(&coordinator, now);
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
        lose(3, WIRE__CAUSE__CLOSED);                   /* one more; the first one counts */
        join(request(4, 3, 3));
        assert_null(latest(ACTION_GENERATION));
        join(request(5, 3, 3));
        assert_int_equal(count(ACTION_GENERATION), 3);
        assert_int_equal(latest(ACTION_GENERATION)->loss.member, 2);
        assert_int_equal(count(ACTION_INTERRUPTED), 1);
        assert_int_equal(count(ACTION_BUILD), 0);       /* the same communicator */
        n_acted = 0;
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
        has_answer = false;
        coordinator_receive(&coordinator, now, &answer);
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
        assert_int_equal(latest(ACTION_GENERATION)->world, 1);  /* nobody waits for it */
}

static void the_whole_job_ends_after_a_verdict(void **state) {
        form(2, 2, 2);
        open_unit(TRACK_STEP);
        open_unit(TRACK_STEP + 1);
        node_full(&node, now, node.generation, TRACK_STEP + 1);
        coordinator_end(&coordinator, now, JOB_END_ENDED, WIRE__CAUSE__SHUTDOWN);
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
        coordinator_end(&coordinator, now, JOB_END_ENDED, WIRE__CAUSE__SUPERSEDED);
        pump();
        assert_int_equal(latest(ACTION_ENDED)->end, JOB_END_ENDED);
        assert_int_equal(latest(ACTION_ENDED)->loss.cause, WIRE__CAUSE__SUPERSEDED);
}

static void nothing_is_made_while_the_caller_holds(void **state) {
        form(2, 1, 2);
        coordinator.hold = true;
        lose(1, WIRE__CAUSE__EXITED);
        assert_non_null(latest(ACTION_INTERRUPTED));
        now += 3 * SECOND;
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(node.phase, NODE_SETTLED);
        coordinator.hold = false;
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(latest(ACTION_GENERATION)->world, 1);
}

static void nobody_is_turned_away_while_the_caller_holds(void **state) {
        struct membership_request waits = request(1, 2, 2);

        start();
        waits.timeout = SECOND;
        coordinator.hold = true;
        join(waits);
        now += 2 * SECOND;
        coordinator_tick(&coordinator, now);
        pump();
        assert_null(latest(ACTION_REFUSED));
        join(request(2, 2, 2));
        assert_null(latest(ACTION_BUILD));
        coordinator.hold = false;
        coordinator_tick(&coordinator, now);
        pump();
        assert_non_null(latest(ACTION_BUILD));
}

/* A step that is open may need another one before it can become full. */
static void the_world_grows_when_all_is_quiet(void **state) {
        form(1, 1, 2);
        open_unit(TRACK_STEP);
        join(request(2, 1, 2));
        assert_int_equal(coordinator.order, ORDER_STOP);
        open_unit(TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_OPEN)->track, TRACK_STEP + 1);
        assert_int_equal(coordinator.stop[TRACK_STEP + 1], 1);
        open_unit(TRACK_OPERATION);
        commit(TRACK_OPERATION);
        commit(TRACK_STEP + 1);
        node_full(&node, now, node.generation, TRACK_STEP);
        open_unit(TRACK_STEP + 1);              /* nothing needs it any more */
        assert_int_equal(node.track[TRACK_STEP + 1].state, UNIT_WANTED);
        node_landed(&node, now, node.generation, TRACK_STEP);
        pump();
        quiet(TRACK_STEP + 1);
        assert_int_equal(latest(ACTION_GENERATION)->world, 2);
        assert_int_equal(latest(ACTION_GENERATION)->number, 2);
        assert_int_equal(latest(ACTION_GENERATION)->loss.cause, 0);
        assert_null(latest(ACTION_INTERRUPTED));
        assert_null(latest(ACTION_VOID));       /* it was never open */
}

static void what_is_spoilt_is_void(void **state) {
        for (unsigned late = 0; late < 3; late++) {
                form(2, 1, 2);
                open_unit(TRACK_STEP);
                if (late > 0)
                        node_full(&node, now, node.generation, TRACK_STEP);
                if (late == 2)
                        lose(2, WIRE__CAUSE__EXITED);   /* another reason; it stands to be committed */
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
        while (node.phase != NODE_FROZEN) {
                has_answer = false;
                coordinator_receive(&coordinator, now, &answer);
                has_order = false;
                node_receive(&node, now, &command);
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
        n_acted = 0;
        lose(1, WIRE__CAUSE__EXITED);                   /* the other one's state is as good */
        join(request(4, 2, 2));
        assert_int_equal(count(ACTION_GENERATION), 2);
}

static void recover(uint32_t world, uint64_t expected) {
        struct membership_request any = request(1, 1, world);

        start();
        coordinator.hold = true;
        coordinator_recover(&coordinator, now, &any, 41, world, 1000, expected);
        node_recover(&node, now, coordinator.current, world);
        pump();
        assert_int_equal(node.phase, NODE_SETTLED);
}

static void come_back(uint64_t id, uint32_t rank, uint32_t world, uint64_t step) {
        struct membership_request back = request(id, 1, world);
        struct tag tag = { .incarnation = 1, .generation = 41, .step = step };

        coordinator_return(&coordinator, now, rank, rank, 50 + rank, &back);
        node_return(&node, now, &back, rank, rank, &tag);
        pump();
}

static void a_job_is_taken_back(void **state) {
        recover(2, now + SECOND);
        come_back(1, 0, 2, 9);
        come_back(2, 1, 2, 9);
        coordinator_recount(&coordinator, 43);
        node_recount(&node, 43);
        assert_null(latest(ACTION_GENERATION));
        coordinator.hold = false;
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->generation.number, 44);
        assert_int_equal(latest(ACTION_GENERATION)->id, 51);
        assert_int_equal(latest(ACTION_GENERATION)->number, 9);
        assert_int_equal(latest(ACTION_GENERATION)->behind, false);
        assert_int_equal(latest(ACTION_GENERATION)->loss.cause, WIRE__CAUSE__RESTARTED);
        open_unit(TRACK_STEP);
        commit(TRACK_STEP);
        assert_int_equal(node.member[0].tag.step, 10);
}

static void who_does_not_come_back_is_waited_for(void **state) {
        recover(3, now + SECOND);
        come_back(1, 0, 3, 9);
        come_back(2, 2, 3, 8);                          /* it missed the last step */
        coordinator.hold = false;
        coordinator_tick(&coordinator, now);
        pump();
        assert_null(latest(ACTION_GENERATION));
        coordinator_forget(&coordinator, now, 1);
        now = membership_deadline(&coordinator.membership);
        assert_int_equal(now, NOW + SECOND);            /* the grace */
        coordinator_tick(&coordinator, now);
        pump();
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->world, 2);
        assert_int_equal(latest(ACTION_GENERATION)->behind, true);
}

static void who_comes_back_may_be_lost_again(void **state) {
        recover(2, now + SECOND);
        come_back(1, 0, 2, 9);
        come_back(2, 1, 2, 9);
        lose(2, WIRE__CAUSE__EXITED);
        coordinator.hold = false;
        coordinator_tick(&coordinator, now);
        pump();
        assert_null(latest(ACTION_GENERATION));
        join(request(3, 1, 2));
        assert_int_equal(count(ACTION_GENERATION), 2);
        assert_int_equal(latest(ACTION_GENERATION)->member, 3);
        assert_int_equal(latest(ACTION_GENERATION)->behind, true);
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
                cmocka_unit_test(nothing_is_made_while_the_caller_holds),
                cmocka_unit_test(nobody_is_turned_away_while_the_caller_holds),
                cmocka_unit_test(the_world_grows_when_all_is_quiet),
                cmocka_unit_test(what_is_spoilt_is_void),
                cmocka_unit_test(what_is_spoilt_before_the_verdict_is_void),
                cmocka_unit_test(operations_that_differ_here_are_a_mismatch),
                cmocka_unit_test(who_was_behind_has_the_state_before_its_first_step),
                cmocka_unit_test(a_job_is_taken_back),
                cmocka_unit_test(who_does_not_come_back_is_waited_for),
                cmocka_unit_test(who_comes_back_may_be_lost_again),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
