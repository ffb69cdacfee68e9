/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What node and coordinator make of messages that they should not act upon: from a term that is over, for
 * another run, about another generation, in the wrong phase, or made of noise. That the protocol does what it
 * is for is the simulation's matter.
 */
#include "machine_fixture.h"

static struct node before;
static struct track tracks_before[LIMIT_TRACKS];

static void remember(void) {
        before = node;
        memcpy(tracks_before, node.track, sizeof(tracks_before));
        forget();
}

/* All that matters is as it was; only clocks may have moved. */
static bool unchanged(void) {
        return node.phase == before.phase && node.term == before.term && node.n == before.n &&
               node.held == before.held && node.stopping == before.stopping &&
               generation_equal(node.generation, before.generation) &&
               generation_equal(node.comm, before.comm) &&
               memcmp(node.track, tracks_before, sizeof(tracks_before)) == 0 &&
               memcmp(node.lane, before.lane, sizeof(node.lane)) == 0 && n_acted() == 0;
}

static void each_phase_is_reached(void **state) {
        for (unsigned phase = NODE_RUNNING; phase <= NODE_SETTLED; phase++) {
                reach(phase);
                assert_int_equal(node.phase, phase);
        }
}

/* Which orders do something in which phase; all others leave everything as it is. */
static void orders_apply_to_phases(void **state) {
        static const struct {
                enum node_phase phase;
                uint32_t orders;
        } table[] = {
#define O(kind) (1u << ORDER_##kind)
                { NODE_RUNNING, O(HOLD) | O(FREEZE) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_FROZEN, O(CUT) | O(ABORT) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_FILLING, O(FREEZE) | O(ABORT) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_ABORTING, O(FREEZE) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_ABORTED, O(FREEZE) | O(VERDICT) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_SETTLING, O(FREEZE) | O(FENCE) | O(END) | O(REFUSE) },
                { NODE_SETTLED, O(FREEZE) | O(NEWGEN) | O(FENCE) | O(END) | O(REFUSE) },
#undef O
        };

        for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
                for (unsigned kind = 0; kind < ANSWER_REPORT; kind++) {
                        struct message m = order(kind, 100);

                        reach(table[i].phase);
                        remember();
                        m.seq[0] = 2;
                        m.member = member(1, 1).member;
                        if (kind == ORDER_REFUSE) {
                                m.end = JOB_END_REFUSED;
                                m.refusal.code = 1;
                        }
                        if (kind == ORDER_NEWGEN)
                                m.generation.number = m.comm.number = 2;
                        tell(m);
                        assert_int_equal(!unchanged(), table[i].orders >> kind & 1);
                }
}

static void what_is_not_meant_for_a_node_is_dropped(void **state) {
        for (unsigned kind = 0; kind < N_MESSAGE_KINDS; kind++)
                for (unsigned wrong = 0; wrong < 6; wrong++) {
                        struct message m = order(kind, 100);

                        reach(NODE_RUNNING);
                        remember();
                        m.member = member(1, 1).member;
                        if (wrong == 0)
                                m.term = 255;
                        else if (wrong == 1)
                                m.instance = 4;
                        else if (wrong == 2)
                                m.to = 0;
                        else if (wrong == 3)
                                m.from = 1; /* no candidate */
                        else if (wrong == 4)
                                m.n_members = LIMIT_LOCAL + 1;
                        else
                                m.kind = N_MESSAGE_KINDS + kind;
                        tell(m);
                        assert_true(unchanged());
                        assert_int_equal(node.round, before.round);
                }
}

static void an_order_is_carried_out_once_and_in_order(void **state) {
        reach(NODE_RUNNING);
        tell(order(ORDER_FREEZE, 9));
        remember();
        tell(order(ORDER_FREEZE, 9));
        tell(order(ORDER_ABORT, 8));
        tell(order(ORDER_RUN, 8));
        assert_true(unchanged());
        assert_int_equal(node.phase, NODE_FROZEN);
}

static void an_order_that_is_old_by_the_own_clock_is_dropped(void **state) {
        struct message m = order(ORDER_FREEZE, 9);

        reach(NODE_RUNNING);
        node_receive(&node, NOW + times.patience + 1, &m);
        assert_int_equal(node.phase, NODE_RUNNING);
        assert_true(node.suspended);
        node_tick(&node, NOW + times.patience + 1);
        m.stamp = node.stamp;
        node_receive(&node, NOW + times.patience + 1, &m);
        assert_int_equal(node.phase, NODE_FROZEN); /* said again, as an answer to what the node said since */
}

/* A coordinator that answers what this node has not said yet is no sign of life. */
static void an_answer_to_what_was_not_said_does_not_count(void **state) {
        struct message m = order(ORDER_RUN, 9);

        reach(NODE_RUNNING);
        m.stamp = node.stamp + times.abandon;
        tell(m);
        assert_false(node.suspended);
        node_tick(&node, NOW + times.patience + 1);
        assert_true(node.suspended);
}

static void who_was_left_behind_leaves(void **state) {
        struct message m = order(ORDER_COLLECT, 9);

        reach(NODE_RUNNING);
        m.generation.number = 2;
        tell(m);
        assert_int_equal(node.phase, NODE_LEAVING);
}

static void a_later_term_begins_anew(void **state) {
        struct message m = order(ORDER_FREEZE, 1);

        reach(NODE_RUNNING);
        m.term = 512;
        tell(m);
        assert_int_equal(node.phase, NODE_FROZEN);
        m = order(ORDER_ABORT, 50); /* of the former one */
        forget();
        tell(m);
        assert_int_equal(node.phase, NODE_FROZEN);
        assert_int_equal(n_sent(), 1); /* it is told that there is a later one */
        assert_int_equal(sent(0)->term, 512);
}

static void a_verdict_beyond_what_is_prepared_is_refused(void **state) {
        struct message m = order(ORDER_VERDICT, 5);

        reach(NODE_ABORTED);
        remember();
        m.n_tracks = TRACK_STEP + 1;
        m.mark[TRACK_STEP] = 1;
        tell(m);
        assert_true(unchanged());
}

static void calls_of_another_generation_are_absorbed(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 1, 0 };
        struct generation other = { 256, 2, 7 };

        reach(NODE_RUNNING);
        remember();
        assert_false(node_open(&node, NOW, other, TRACK_STEP, planned));
        assert_false(node_open(&node, NOW, first, LIMIT_TRACKS, planned));
        node_offer(&node, NOW, first, TRACK_STEP, 0); /* nothing is open */
        node_done(&node, NOW, other, 0, 1, 1);
        node_done(&node, NOW, first, 0, 1, 1); /* nothing was launched */
        node_done(&node, NOW, first, LIMIT_LANES, 1, 1);
        node_aborted(&node, NOW, other);
        node_unreachable(&node, NOW, other, (struct nodeset){ (uint64_t[]){ 1 }, 1 });
        node_landed(&node, NOW, first, TRACK_STEP);
        node_quiet(&node, NOW, first, TRACK_STEP);
        assert_true(unchanged());
        assert_true(node_open(&node, NOW, first, TRACK_STEP, planned));
        node_offer(&node, NOW, first, TRACK_STEP, 0);
        node_offer(&node, NOW, first, TRACK_STEP, 0); /* more than was planned */
        assert_int_equal(node.track[TRACK_STEP].offered[0], 1);
        assert_int_equal(n_acted(), 2);
        assert_int_equal(acted(0)->kind, ACTION_OPEN);
        assert_int_equal(acted(1)->kind, ACTION_LAUNCH);
}

static bool is_reported_torn(void) {
        assert_true(n_sent() > 0);
        return sent(n_sent() - 1)->torn;
}

/* Its report says once that members have heard of something void, and the next generation to all of them. */
static void what_members_hear_is_void_is_reported(void **state) {
        for (unsigned torn = 0; torn < 2; torn++) {
                struct message m = order(ORDER_NEWGEN, 6);

                reach(NODE_SETTLING);
                if (torn)
                        node_tear_unit(&node, NOW, first, TRACK_STEP);
                node_tear_unit(&node, NOW, first, TRACK_STEP + 1); /* nothing of it was begun */
                node_quiet(&node, NOW, first, TRACK_STEP);
                assert_int_equal(node.phase, NODE_SETTLED);
                assert_int_equal(is_reported_torn(), torn);
                m.generation.number = m.comm.number = 2;
                m.torn = torn;
                tell(m);
                forget();
                node_built(&node, NOW, m.comm, (struct nodeset){ 0 });
                assert_int_equal(acted(n_acted() - 1)->kind, ACTION_ENTERED);
                assert_int_equal(acted(n_acted() - 1)->torn, torn);
                assert_false(is_reported_torn());
        }
        reach(NODE_FROZEN);
        node_tear(&node, (struct generation){ 256, 2, 7 });
        assert_false(node.torn);
        node_tear(&node, first);
        assert_true(node.torn);
}

/* What is void stays so until members have heard it, in whatever generation. */
static void a_generation_that_is_not_entered_is_torn_in_the_next(void **state) {
        struct message m = order(ORDER_NEWGEN, 6);

        reach(NODE_SETTLED);
        m.generation.number = m.comm.number = 2;
        m.torn = true;
        tell(m);
        assert_int_equal(node.phase, NODE_BUILDING);
        m.kind = ORDER_FREEZE;
        m.round = 7;
        tell(m);
        assert_true(is_reported_torn());
}

/* Members that ask anew do not go on with what the others go on with. */
static void a_node_outside_does_not_go_on_with_the_others(void **state) {
        struct message m = order(ORDER_NEWGEN, 6);

        reach(NODE_SETTLED);
        tell(order(ORDER_FENCE, 6));
        node_aborted(&node, NOW, first);
        assert_int_equal(node.phase, NODE_OUT);
        m.round = 7;
        m.generation.number = m.comm.number = 2;
        tell(m);
        assert_int_equal(node.phase, NODE_OUT);
        m.round = 8;
        m.torn = true;
        tell(m);
        assert_int_equal(node.phase, NODE_BUILDING);
}

/* A later coordinator does not know which plan has the track here, and has given it to the other one. What
 * the node says then of its plans must be a message that others take. */
static void a_track_is_not_that_of_two_plans(void **state) {
        struct message m = order(ORDER_RUN, 3);

        start_node();
        node_agree(&node, NOW, 2, 22, false);
        m.stamp = node.stamp;
        m.n_plans = 1;
        m.plan[0] = (struct message_plan){ .digest = 22, .ordinal = 2, .track = TRACK_STEP, .open = true };
        tell(m);
        assert_int_equal(node.plan[0].track, TRACK_STEP);
        node_agree(&node, NOW, 1, 11, false);
        m = order(ORDER_FENCE, 1);
        m.term = 512;
        m.stamp = node.stamp;
        m.n_plans = 1;
        m.plan[0] = (struct message_plan){ .digest = 11, .ordinal = 1, .track = TRACK_STEP, .open = true };
        tell(m);
        assert_int_equal(node.term, 512);
        assert_int_equal(node.plan[0].track, TRACK_STEP);
        assert_int_equal(node.plan[1].track, TRACK_OPERATION);
        assert_false(node.plan[1].open);
        forget();
        node_aborted(&node, NOW, first);
        assert_int_equal(node.phase, NODE_OUT);
        assert_true(n_sent() > 0 && message_valid(sent(n_sent() - 1)));
}

static unsigned launches(void) {
        unsigned n = 0;

        for (unsigned i = 0; i < n_acted(); i++)
                n += acted(i)->kind == ACTION_LAUNCH;
        return n;
}

/* What the engine has and has not ended is never more than the window. The bug planted: one more. */
static void a_lane_takes_no_more_than_its_window(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 5, 0 };

        reach(NODE_RUNNING);
        assert_true(node_open(&node, NOW, first, TRACK_STEP, planned));
        forget();
        for (unsigned i = 0; i < 5; i++)
                node_offer(&node, NOW, first, TRACK_STEP, 0);
        assert_int_equal(launches(), 2);
        for (unsigned done = 1; done <= 3; done++) {
                node_done(&node, NOW, first, 0, done, 1);
                assert_int_equal(launches(), 2 + done);
        }
}

/* Two payloads on the lane of operations; the first one is the comparison. */
static void an_operation_that_differs_moves_no_payload(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 0, 2 };

        reach(NODE_RUNNING);
        assert_true(node_open(&node, NOW, first, TRACK_OPERATION, planned));
        forget();
        node_offer(&node, NOW, first, TRACK_OPERATION, 1);
        node_offer(&node, NOW, first, TRACK_OPERATION, 1);
        assert_int_equal(n_acted(), 1);
        assert_int_equal(acted(0)->launch, LAUNCH_PAYLOAD);
        node_done(&node, NOW, first, 1, 1, 0); /* not equal */
        assert_int_equal(acted(1)->launch, LAUNCH_FILLER);
        node_done(&node, NOW, first, 1, 2, 0);
        assert_int_equal(acted(2)->launch, LAUNCH_VOTE);
        assert_int_equal(acted(2)->value, 0);
        node_done(&node, NOW, first, 1, 3, 0);
        assert_int_equal(acted(3)->kind, ACTION_CANCEL);
        assert_int_equal(n_acted(), 4);
        node_quiet(&node, NOW, first, TRACK_OPERATION);
        assert_int_equal(acted(4)->kind, ACTION_MISMATCH);
        assert_int_equal(node.track[TRACK_OPERATION].committed, 0);
}

/* Called differently by members of this node: others learn it from the comparison, which nothing equals. */
static void an_operation_that_differs_here_is_voted_down(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 0, 2 };

        reach(NODE_RUNNING);
        assert_true(node_open(&node, NOW, first, TRACK_OPERATION, planned));
        forget();
        node_differ(&node, NOW, first, TRACK_OPERATION);
        assert_int_equal(acted(0)->launch, LAUNCH_FILLER);
        node_done(&node, NOW, first, 1, 1, 0);
        assert_int_equal(acted(1)->launch, LAUNCH_FILLER);
        node_done(&node, NOW, first, 1, 2, 0);
        assert_int_equal(acted(2)->launch, LAUNCH_VOTE);
        assert_int_equal(acted(2)->value, 0);
        assert_int_equal(node.track[TRACK_OPERATION].prepared, 0);
        node_done(&node, NOW, first, 1, 3, 0);
        node_quiet(&node, NOW, first, TRACK_OPERATION);
        assert_int_equal(acted(n_acted() - 1)->kind, ACTION_MISMATCH);
}

/* The comparison has said that all are equal: it is too late to say something else. */
static void what_was_compared_does_not_differ_later(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 0, 2 };

        reach(NODE_RUNNING);
        assert_true(node_open(&node, NOW, first, TRACK_OPERATION, planned));
        node_offer(&node, NOW, first, TRACK_OPERATION, 1);
        remember();
        node_differ(&node, NOW, first, TRACK_OPERATION);
        node_spoil(&node, NOW, first, TRACK_OPERATION); /* there are other nodes */
        assert_true(unchanged());
}

/* Two plans whose steps go on the same lane, open and full, and a third one that is only open. */
static void open_on_a_shared_lane(void) {
        static const uint64_t planned[LIMIT_LANES] = { 0, 0, 1, 0 };

        start_node();
        node.config.n_lanes = LIMIT_LANES;
        for (uint32_t track = TRACK_STEP; track < TRACK_STEP + 3; track++) {
                struct message m = order(ORDER_RUN, 2 + track);

                node_agree(&node, NOW, track, 11 * track, false);
                m.stamp = node.stamp;
                m.n_tracks = track + 1;
                m.n_plans = track;
                for (uint32_t i = 0; i < track; i++)
                        m.plan[i] = (struct message_plan){
                                .digest = 11 * (i + 1), .ordinal = i + 1, .track = i + 1, .open = true
                        };
                tell(m);
                assert_true(node_open(&node, NOW, first, track, planned));
                node_offer(&node, NOW, first, track, 2);
        }
        for (uint32_t track = TRACK_STEP; track < TRACK_STEP + 2; track++) {
                forget();
                node_full(&node, NOW, first, track);
                assert_int_equal(n_sent(), 1);
                assert_int_equal(sent(0)->plan[track - 1].unit, 1);
                assert_int_equal(sent(0)->plan[track - 1].turn, 0);
                assert_int_equal(sent(0)->plan[2].unit, 0);
        }
        assert_int_equal(launches(), 0);
        forget();
}

static struct message turns(uint64_t of_first, uint64_t of_second) {
        struct message m = order(ORDER_RUN, 9);

        m.stamp = node.stamp;
        m.n_tracks = TRACK_STEP + 2;
        m.n_plans = 2;
        m.plan[0] = (struct message_plan){ .digest = 11, .ordinal = 1, .track = 1, .open = true };
        m.plan[1] = (struct message_plan){ .digest = 22, .ordinal = 2, .track = 2, .open = true };
        m.plan[0].turn = of_first;
        m.plan[0].unit = of_first > 0;
        m.plan[1].turn = of_second;
        m.plan[1].unit = of_second > 0;
        return m;
}

/* The second one first; its vote is enough for the other to follow, and each gets what is its own. */
static void plans_that_share_a_lane_take_turns(void **state) {
        open_on_a_shared_lane();
        tell(turns(8, 7));
        assert_int_equal(launches(), 1);
        assert_int_equal(acted(0)->track, TRACK_STEP + 1);
        node_done(&node, NOW, first, 2, 1, 0);
        assert_int_equal(launches(), 3);
        assert_int_equal(acted(1)->launch, LAUNCH_VOTE);
        assert_int_equal(acted(2)->launch, LAUNCH_PAYLOAD);
        assert_int_equal(acted(2)->track, TRACK_STEP);
        node_done(&node, NOW, first, 2, 2, 1);
        node_done(&node, NOW, first, 2, 3, 1);
        assert_int_equal(node.track[TRACK_STEP].committed, 0);
        assert_int_equal(node.track[TRACK_STEP + 1].committed, 1);
        node_done(&node, NOW, first, 2, 4, 1);
        assert_int_equal(node.track[TRACK_STEP].committed, 1);
        assert_int_equal(node.track[TRACK_STEP + 2].committed, 0);
}

/* Of another unit, of one that has not asked, or of another generation. */
static void a_turn_is_that_of_the_unit_that_asked(void **state) {
        struct message m;

        open_on_a_shared_lane();
        m = turns(7, 0);
        m.plan[0].unit = 2;
        tell(m);
        m = turns(7, 0);
        m.plan[0].ordinal = m.plan[0].track = 3;
        m.n_tracks = TRACK_STEP + 3;
        tell(m);
        m = turns(7, 0);
        m.generation.nonce++;
        tell(m);
        assert_int_equal(launches(), 0);
        tell(turns(7, 0));
        assert_int_equal(launches(), 1);
}

static struct message answer_of(uint32_t from, uint64_t unit, uint64_t turn) {
        static uint64_t stamp = NOW;
        struct message m = { .kind = ANSWER_REPORT,
                             .from = from,
                             .instance = 1,
                             .term = coordinator.term,
                             .round = 1,
                             .stamp = ++stamp,
                             .generation = first,
                             .comm = first,
                             .running = true,
                             .world = 2,
                             .n_words = 1,
                             .set = { 3 },
                             .n_members = 1,
                             .n_plans = 1,
                             .n_tracks = TRACK_STEP + 1 };

        m.member_of[0] = (struct message_member){ .request = member(from, 1), .in = true, .rank = from };
        m.plan[0] = (struct message_plan){
                .digest = 3, .ordinal = 4, .track = TRACK_STEP, .open = true, .unit = unit, .turn = turn
        };
        return m;
}

static void hear(struct message m) {
        coordinator_receive(&coordinator, NOW, &m);
}

/* A coordinator that takes over a generation of two nodes. */
static void a_unit_has_its_turn_when_it_is_full_everywhere(void **state) {
        const struct track_owner *owner;

        start_coordinator((struct coordinator_config){ .candidates = 1 }, NOW);
        owner = &coordinator.owner[TRACK_STEP];
        coordinator_tick(&coordinator, NOW);
        for (uint32_t from = 0; from < 2; from++)
                hear(answer_of(from, 0, 0));
        assert_int_equal(coordinator.stage, STAGE_RUNNING);
        hear(answer_of(0, 1, 0));
        assert_int_equal(owner->turn, 0);
        forget();
        hear(answer_of(1, 1, 0));
        assert_int_equal(owner->turn, 1);
        assert_int_equal(owner->unit, 1);
        assert_int_equal(sent(0)->plan[0].turn, 1);
        assert_int_equal(sent(1)->plan[0].unit, 1);
        hear(answer_of(0, 1, 0)); /* said before it heard */
        assert_int_equal(owner->turn, 1);
}

/* One of the nodes has heard of a turn, perhaps it has launched the unit. */
static void turns_are_known_to_the_next_coordinator(void **state) {
        start_coordinator((struct coordinator_config){ .candidates = 1 }, NOW);
        coordinator_tick(&coordinator, NOW);
        hear(answer_of(0, 1, 6));
        forget();
        hear(answer_of(1, 1, 0));
        assert_int_equal(coordinator.owner[TRACK_STEP].turn, 6);
        assert_int_equal(coordinator.turn, 6);
        assert_int_equal(sent(n_sent() - 1)->plan[0].turn, 6);
}

static void a_node_beyond_the_table_is_not_heard(void **state) {
        struct message m = { .kind = ANSWER_REPORT, .from = NODES, .instance = 1, .stamp = NOW };
        struct reporter reporters[NODES];

        start_coordinator((struct coordinator_config){ .candidates = 1 }, NOW);
        coordinator_tick(&coordinator, NOW);
        memcpy(reporters, coordinator.node, sizeof(reporters));
        coordinator_receive(&coordinator, NOW, &m);
        assert_int_equal(coordinator.top, 0);
        assert_memory_equal(reporters, coordinator.node, sizeof(reporters));
        m.from = NODES - 1;
        coordinator_receive(&coordinator, NOW, &m);
        assert_int_equal(coordinator.top, NODES);
}

/* A coordinator that lets node 0 enter a first generation, of members 1 … n; `m` is the node's report. */
static void reach_entering(struct message *m, uint32_t n) {
        *m = (struct message){ .kind = ANSWER_REPORT, .instance = 1, .stamp = NOW, .n_members = n };
        for (uint32_t i = 0; i < n; i++)
                m->member_of[i] = (struct message_member){ .request = member(0, 1 + i) };
        start_coordinator((struct coordinator_config){ .candidates = 1, .alone = true }, NOW);
        coordinator_tick(&coordinator, NOW);
        coordinator_receive(&coordinator, NOW, m);
        assert_int_equal(coordinator.stage, STAGE_HEARING);
        m->stamp++;
        m->term = coordinator.term;
        m->round = coordinator.round;
        coordinator_receive(&coordinator, NOW, m);
        coordinator_tick(&coordinator, NOW);
        assert_int_equal(coordinator.stage, STAGE_ENTERING);
}

/* The latest message of that kind. */
static const struct message *latest(enum message_kind kind) {
        unsigned i = n_sent();

        while (i > 0 && sent(i - 1)->kind != kind)
                i--;
        assert_true(i > 0);
        return sent(i - 1);
}

/* What node 0 says next. */
static void say_next(struct message *m) {
        m->stamp++;
        coordinator_receive(&coordinator, NOW, m);
        coordinator_tick(&coordinator, NOW);
}

/* What a node has said before it heard of the term may have lain about for long: the node has been told of a
 * generation meanwhile, and perhaps enters it. */
static void an_old_report_is_no_answer_to_a_later_term(void **state) {
        struct message m;
        uint64_t later = NOW + 9 * times.lease;

        reach_entering(&m, 1);
        while (coordinator.stage != STAGE_HEARING)
                coordinator_tick(&coordinator, ++later);
        coordinator_receive(&coordinator, later, &m);
        assert_int_equal(coordinator.stage, STAGE_HEARING);
        m.stamp++;
        m.term = coordinator.term;
        coordinator_receive(&coordinator, later, &m);
        assert_int_equal(coordinator.stage, STAGE_ENTERING);
        assert_int_equal(coordinator.current.number, 2);
}

/* The order to enter is under way: a node that says that it is outside may be inside in a moment. */
static void a_node_that_has_not_heard_of_the_generation_is_not_out(void **state) {
        struct message m;

        reach_entering(&m, 1);
        m.member_of[0].request = member(0, 2); /* the first one is lost */
        say_next(&m);
        assert_int_equal(coordinator.stage, STAGE_FREEZING);
        say_next(&m);
        assert_int_equal(coordinator.stage, STAGE_FREEZING);
        m.round = coordinator.round;
        say_next(&m);
        assert_int_equal(coordinator.stage, STAGE_ENTERING);
        assert_int_equal(coordinator.current.number, 2);
}

/* Nodes that enter a generation hear what has ended the one before. Whom they lose meanwhile, this one has
 * lost. */
static void a_loss_while_nodes_enter_is_that_of_their_generation(void **state) {
        static const enum message_kind answers[N_STAGES] = { [STAGE_FREEZING] = ANSWER_FROZEN,
                                                             [STAGE_CUTTING] = ANSWER_DRAINED,
                                                             [STAGE_ABORTING] = ANSWER_ABORTED,
                                                             [STAGE_DECIDED] = ANSWER_SETTLED };
        struct message m;

        reach_entering(&m, 3);
        m.generation = m.comm = coordinator.current;
        m.world = 3;
        m.n_words = 1;
        m.set[0] = 1;
        m.n_members = 2;
        m.member_of[0].request = member(0, 3); /* the first one is lost */
        say_next(&m);
        for (unsigned rounds = 0; coordinator.stage != STAGE_ENTERING; rounds++) {
                assert_true(rounds < 9);
                m.kind = answers[coordinator.stage];
                m.round = coordinator.round;
                say_next(&m);
        }
        assert_int_equal(coordinator.current.number, 2);
        assert_int_equal(latest(ORDER_NEWGEN)->loss.member, member(0, 1).member);
        m.n_members = 1; /* the second one, too */
        say_next(&m);
        assert_int_equal(coordinator.stage, STAGE_FREEZING);
        assert_int_equal(latest(ORDER_FREEZE)->loss.member, member(0, 2).member);
}

/* Somebody new is the first to come to a daemon that was restarted: its former members may still follow, and
 * have the state. They are waited for as for any node that says nothing. */
static void a_newcomer_is_not_all_that_a_restart_leaves(void **state) {
        for (unsigned spoken = 0; spoken < 2; spoken++) {
                struct message m, words;

                reach_entering(&m, 2);
                m.kind = ANSWER_ACK;
                m.round = coordinator.round;
                m.generation = m.comm = coordinator.current;
                m.world = 2;
                m.n_words = 1;
                m.set[0] = 1;
                m.n_members = 2;
                m.member_of[0].in = m.member_of[1].in = true;
                m.member_of[1].rank = 1;
                say_next(&m);
                assert_int_equal(coordinator.stage, STAGE_RUNNING);
                words = m;
                m = (struct message){ .kind = ANSWER_REPORT,
                                      .instance = 2,
                                      .term = m.term,
                                      .stamp = m.stamp,
                                      .n_members = 1,
                                      .member_of = { { .request = member(0, 9) } } };
                say_next(&m);
                m.round = coordinator.round; /* it has heard that it is asked */
                say_next(&m);
                assert_int_equal(coordinator.stage, STAGE_HEARING);
                if (!spoken) {
                        coordinator_tick(&coordinator, NOW + times.death / 2);
                        coordinator_tick(&coordinator, NOW + times.death + 1);
                        assert_int_not_equal(coordinator.stage, STAGE_HEARING);
                        continue;
                }
                m.origin = ORIGIN_AWAITED;
                say_next(&m);
                assert_int_equal(coordinator.stage, STAGE_HEARING);
                m = words;
                m.kind = ANSWER_REPORT;
                m.instance = 2;
                m.stamp = NOW + 10;
                m.round = coordinator.round;
                m.origin = ORIGIN_WORDS;
                say_next(&m);
                assert_int_equal(coordinator.current.number, 1);
                assert_int_equal(coordinator.tally.survivors, 1);
        }
}

/* Members of a node that has heard of the end have been told, and went. */
static void a_member_that_goes_after_the_end_is_not_lost(void **state) {
        struct message m;

        reach_entering(&m, 1);
        m.n_members = 0;
        m.end = JOB_END_ENDED;
        say_next(&m);
        assert_int_equal(coordinator.membership.loss.member, 0);
        m.end = JOB_END_NONE;
        say_next(&m);
        assert_int_equal(coordinator.membership.loss.member, member(0, 1).member);
}

static void a_vote_of_all_commits_when_the_results_are_there(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 1, 0 };

        reach(NODE_RUNNING);
        assert_true(node_open(&node, NOW, first, TRACK_STEP, planned));
        forget();
        node_offer(&node, NOW, first, TRACK_STEP, 0);
        node_done(&node, NOW, first, 0, 1, 0);
        assert_int_equal(node.track[TRACK_STEP].prepared, 1);
        assert_int_equal(acted(1)->value, 1);
        node_done(&node, NOW, first, 0, 2, 1);
        assert_int_equal(node.track[TRACK_STEP].committed, 1);
        assert_int_equal(n_acted(), 2); /* nobody is told yet */
        node_landed(&node, NOW, first, TRACK_STEP);
        assert_int_equal(acted(2)->kind, ACTION_COMMITTED);
        assert_int_equal(node.member[0].tag.step, 1);
}

static void a_node_that_hears_nobody_holds_still_then_leaves(void **state) {
        static const uint64_t planned[LIMIT_LANES] = { 1, 0 };

        reach(NODE_RUNNING);
        node_tick(&node, node.contact + times.patience + 1);
        assert_true(node.suspended);
        assert_true(node_open(&node, node.contact + times.patience + 1, first, TRACK_STEP, planned));
        node_offer(&node, node.contact + times.patience + 1, first, TRACK_STEP, 0);
        assert_int_equal(node.lane[0].launched, 0);
        node_tick(&node, node.contact + times.abandon + 1);
        assert_int_equal(node.phase, NODE_LEAVING);
        node_quiet(&node, node.contact + times.abandon + 1, first, TRACK_STEP);
        node_aborted(&node, node.contact + times.abandon + 1, first);
        assert_int_equal(node.phase, NODE_OUT);
        assert_int_equal(acted(n_acted() - 1)->kind, ACTION_OUT);
        assert_int_equal(acted(n_acted() - 1)->since, NOW);
}

static uint32_t seed = 1;

static uint32_t noise(void) {
        seed = seed * 1664525u + 1013904223u;
        return seed >> 8;
}

static struct message noisy(uint32_t to) {
        struct message m;

        memset(&m, 0, offsetof(struct message, mark));
        m = (struct message){ .kind = noise() % (N_MESSAGE_KINDS + 1),
                              .from = noise() % 5,
                              .to = to,
                              .instance = noise() % 7,
                              .term = 256 * (noise() % 4),
                              .round = noise() % 12,
                              .stamp = NOW + noise() % 9,
                              .generation = { 256, noise() % 4, 7 },
                              .comm = { 256, noise() % 4, 7 },
                              .n_words = 1,
                              .set = { noise() % 32 },
                              .links = { noise() % 8 },
                              .world = noise() % 5,
                              .source = noise() % 5,
                              .end = noise() % (N_JOB_ENDS + 1),
                              .member = member_id(to, 0, noise() % 5),
                              .running = noise() % 2,
                              .n_members = noise() % 4,
                              .n_tracks = noise() % 5 };
        for (unsigned i = 0; i < LIMIT_LANES; i++)
                m.seq[i] = noise() % 6;
        for (unsigned i = 0; i < m.n_tracks; i++) {
                m.mark[i] = noise() % 4;
                m.committed[i] = noise() % 4;
                m.prepared[i] = m.committed[i] + noise() % 3;
        }
        for (unsigned i = 0; i < m.n_members; i++)
                m.member_of[i] = (struct message_member){ .request = member(noise() % 8 == 0 ? noise() % 5
                                                                            : m.kind >= ANSWER_REPORT ? m.from
                                                                                                      : to,
                                                                            noise() % 6),
                                                          .rank = noise() % 4,
                                                          .in = noise() % 2,
                                                          .leaving = noise() % 5 == 0 };
        return m;
}

/* Whatever comes: numbers never go back, and nothing is prepared beyond what is open. */
static void noise_breaks_no_node(void **state) {
        for (unsigned run = 0; run < 300; run++) {
                uint64_t term = 0;

                reach(NODE_RUNNING + run % (NODE_SETTLED - NODE_RUNNING + 1));
                for (unsigned i = 0; i < 60; i++) {
                        struct message m = noisy(1);

                        tell(m);
                        assert_true(node.term >= term && node.n <= LIMIT_LOCAL);
                        term = node.term;
                        for (uint32_t track = 0; track < node.n_tracks; track++)
                                assert_true(node.track[track].prepared >= node.track[track].committed &&
                                            node.track[track].prepared <= node.track[track].committed + 1);
                        forget();
                }
        }
}

static void noise_breaks_no_coordinator(void **state) {
        for (unsigned run = 0; run < 300; run++) {
                uint64_t term = 0, now = NOW;

                start_coordinator((struct coordinator_config){ .candidates = 1 + run % 2 * 2,
                                                               .nonce = run,
                                                               .alone = run % 3 == 0 },
                                  now);
                for (unsigned i = 0; i < 200; i++) {
                        struct message m = noisy(0);

                        now += noise() % 20000;
                        coordinator_receive(&coordinator, now, &m);
                        coordinator_tick(&coordinator, now);
                        assert_true(coordinator.term >= term &&
                                    membership_all(&coordinator.membership) <= LIMIT_SEATS);
                        assert_true(coordinator.membership.n + coordinator.membership.n_waiting <=
                                    LIMIT_LOCAL);
                        assert_true(nodeset_within(coordinator.lost, coordinator.set));
                        assert_true(counts_agree(&coordinator));
                        term = coordinator.term;
                        forget();
                }
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_phase_is_reached),
                cmocka_unit_test(orders_apply_to_phases),
                cmocka_unit_test(what_is_not_meant_for_a_node_is_dropped),
                cmocka_unit_test(an_order_is_carried_out_once_and_in_order),
                cmocka_unit_test(an_order_that_is_old_by_the_own_clock_is_dropped),
                cmocka_unit_test(an_answer_to_what_was_not_said_does_not_count),
                cmocka_unit_test(who_was_left_behind_leaves),
                cmocka_unit_test(a_later_term_begins_anew),
                cmocka_unit_test(a_verdict_beyond_what_is_prepared_is_refused),
                cmocka_unit_test(calls_of_another_generation_are_absorbed),
                cmocka_unit_test(what_members_hear_is_void_is_reported),
                cmocka_unit_test(a_generation_that_is_not_entered_is_torn_in_the_next),
                cmocka_unit_test(a_node_outside_does_not_go_on_with_the_others),
                cmocka_unit_test(a_track_is_not_that_of_two_plans),
                cmocka_unit_test(a_lane_takes_no_more_than_its_window),
                cmocka_unit_test(an_operation_that_differs_moves_no_payload),
                cmocka_unit_test(an_operation_that_differs_here_is_voted_down),
                cmocka_unit_test(what_was_compared_does_not_differ_later),
                cmocka_unit_test(a_node_beyond_the_table_is_not_heard),
                cmocka_unit_test(a_vote_of_all_commits_when_the_results_are_there),
                cmocka_unit_test(a_node_that_hears_nobody_holds_still_then_leaves),
                cmocka_unit_test(noise_breaks_no_node),
                cmocka_unit_test(an_old_report_is_no_answer_to_a_later_term),
                cmocka_unit_test(a_node_that_has_not_heard_of_the_generation_is_not_out),
                cmocka_unit_test(a_loss_while_nodes_enter_is_that_of_their_generation),
                cmocka_unit_test(a_newcomer_is_not_all_that_a_restart_leaves),
                cmocka_unit_test(a_member_that_goes_after_the_end_is_not_lost),
                cmocka_unit_test(plans_that_share_a_lane_take_turns),
                cmocka_unit_test(a_turn_is_that_of_the_unit_that_asked),
                cmocka_unit_test(a_unit_has_its_turn_when_it_is_full_everywhere),
                cmocka_unit_test(turns_are_known_to_the_next_coordinator),
                cmocka_unit_test(noise_breaks_no_coordinator),
        };

        return cmocka_run_group_tests(tests, make_room, give_room);
}
