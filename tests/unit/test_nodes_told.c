/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the coordinator for a job that has ended here, or whose member has left, before the coordinator
 * heard of it. */
#include "nodes_fixture.h"

#include "job/rejoin.h"

#define TEST(name) FORMED_TEST(name, THREE_AVG)

/* A later incarnation has begun on this daemon. */
TEST(a_job_that_has_ended_hears_of_a_loss) {
        lose(2);
        job_end(job_on(0), WIRE__CAUSE__SUPERSEDED);
        settle();
        assert_int_equal(job_on(0)->state, JOB_LOST);
}

static bool is_building(void) {
        return job_on(0)->machine.node.phase == NODE_BUILDING;
}

/* Holds the first node back, so that it has the communicator of the next generation last. */
static void await_communicator(void) {
        until(is_building());
        cluster->fabric->node[0].held = true;
        rest();
}

/* The generation before has lost a way between its nodes. */
static void await_next_communicator(void) {
        fake_accuse(&cluster->fabric->node[0], 2);
        await_communicator();
}

/* Builds it within one pass of the loop, before the coordinator has heard of anything. */
static void build_communicator(void) {
        cluster->fabric->node[0].held = false;
        while (is_building())
                assert_true(fake_dispatch_one(&cluster->fabric->node[0]));
}

/* The step would lack what that member had to give. */
static void assert_missing(void) {
        assert_int_equal(job_on(0)->generation, 2);
        assert_int_equal(job_on(0)->n_local, 1);
        give(1);
        assert_int_equal(plan_unit(plan_of(0)), UNIT_WANTED);
        settle();
        assert_int_equal(cluster->node[1].committed, 0);
}

TEST(a_job_ends_before_its_generation_is_entered) {
        await_next_communicator();
        job_end(job_on(0), WIRE__CAUSE__SUPERSEDED);
        build_communicator();
        assert_int_equal(job_on(0)->machine.node.phase, NODE_RUNNING);
        assert_int_equal(job_on(0)->generation, 1);
        settle();
        assert_int_equal(job_on(0)->state, JOB_LOST);
}

TEST(a_member_leaves_before_its_generation_is_entered) {
        await_next_communicator();
        lose_for(0, WIRE__CAUSE__LEAVING);
        build_communicator();
        assert_missing();
}

TEST(a_member_is_lost_before_its_generation_is_entered) {
        await_next_communicator();
        lose(0);
        build_communicator();
        assert_missing();
}

/* The next daemon does not wait for it, knows whether it has left, and knows the nodes that the members know
 * of. */
static void assert_journal_has_gone(uint32_t cause, uint32_t flag) {
        const struct journal_job *kept = job_on(0)->kept;

        assert_int_equal(journal_latest(kept)->n_members, 2);
        await_next_communicator();
        assert_true(job_on(0)->machine.node.generation.number > 1);
        lose_for(0, cause);
        const struct journal_generation *now = journal_latest(kept);
        assert_int_equal(now->number.number, 1);
        assert_true(now->ended);
        assert_int_equal(now->n_members, 2);
        assert_int_equal(now->member[0].flags & (JOURNAL_LEFT | JOURNAL_LOST), flag);
        assert_true(sha256_is_none(&now->member[0].secret));
        assert_int_equal(now->member[1].flags & (JOURNAL_LEFT | JOURNAL_LOST), 0);
        assert_false(sha256_is_none(&now->member[1].secret));
        assert_int_equal(nodeset_count((struct nodeset){ (uint64_t *)(uintptr_t)now->set, NODESET_WORDS }),
                         3);
        build_communicator();
        assert_missing();
}

TEST(a_loss_is_in_the_journal_before_the_next_generation_is) {
        assert_journal_has_gone(WIRE__CAUSE__EXITED, JOURNAL_LOST);
}

TEST(a_leave_is_in_the_journal_before_the_next_generation_is) {
        assert_journal_has_gone(WIRE__CAUSE__LEAVING, JOURNAL_LEFT);
}

/* It is still waiting for its place. */
NODES_TEST(a_newcomer_leaves_before_its_generation_is_entered, THREE_AVG) {
        for (uint32_t rank = 0; rank < 4; rank++)
                join(rank < 2 ? 0 : rank - 1, rank, 4);
        await_communicator();
        member_gone(list_entry(job_on(0)->members.next, struct member, link), WIRE__CAUSE__LEAVING);
        build_communicator();
        assert_int_equal(job_on(0)->n_local, 1);
        settle();
}

/* A process of another job of that name comes back after a restart of the daemon. */
NODES_TEST(a_former_member_returns_before_its_generation_is_entered, THREE_AVG) {
        struct job_rejoin rejoin = { .join = { .name = "j",
                                               .cluster = true,
                                               .uid = 1000,
                                               .pid = getpid(),
                                               .token = &cluster->token,
                                               .membership = { .min_world = 4, .max_world = 4 } },
                                     .secret = former_secret(0),
                                     .generation = 1 };
        struct member *member;

        former_job(cluster->node[0].jobs, &rejoin.join, 1, 4, 0);
        for (uint32_t rank = 0; rank < 4; rank++)
                join(rank < 2 ? 0 : rank - 1, rank, 4);
        await_communicator();
        assert_int_equal(jobs_rejoin(cluster->node[0].jobs, &rejoin, &member, &cluster->refusal),
                         WIRE__CODE__STALE);
        build_communicator();
        until(cluster->trainer[3].member != NULL);
}

TEST(a_job_is_refused_before_its_generation_is_entered) {
        fake_accuse(&cluster->fabric->node[0], 2);
        until(job_on(0)->machine.node.phase == NODE_BUILDING);
        speaks_for_nobody = true;
        stations_check(cluster->stations);
        for (uint32_t n = 0; n < 3; n++) {
                until(job_on(n)->state == JOB_LOST);
                cluster->node[n].gone = true;
        }
        settle();
}

/* A loss cuts a step of which a part was launched on all lanes. Another loss comes before most nodes begin
 * the next step. */
TEST(a_generation_begins_with_a_comparison_whatever_was_cut) {
        for (uint32_t rank = 0; rank < 4; rank++)
                ready(rank, 0);
        for (unsigned loss = 0; loss < 2; loss++) {
                settle();
                lose(0);
                replace(0, 0);
                for (uint32_t rank = 0; rank < 4; rank++)
                        cluster->trainer[rank].step[0] = 1;
                if (loss == 0)
                        ready(2, 0);
        }
        step_of(ALL, 1);
}

/* The coordinator refuses the newcomer; the node hears of that later. */
TEST(a_newcomer_with_another_world_changes_nothing) {
        join(0, 0, 1);
        for (uint32_t rank = 0; rank < 4; rank++)
                bring_plan(rank, 1, "q");
        settle();
        assert_int_equal(cluster->node[0].code, WIRE__CODE__RANK_TAKEN);
        for (uint32_t rank = 0; rank < 4; rank++)
                give_to(rank, 1);
        until(all_committed(1));
        assert_sums_of(ALL, 1, 1);
}

/* ---- a coordinator that contradicts itself ---- */

/* As the node is told to go on; alone, in a generation after its own. */
static void begin_order(uint32_t at, enum order_kind kind, struct order *ret) {
        const struct node *node = &job_on(at)->machine.node;

        order_clear(ret);
        ret->kind = kind;
        ret->to = node->config.address;
        ret->instance = node->config.instance;
        ret->term = node->term;
        ret->round = node->round + 1;
        ret->stamp = node->stamp;
        ret->generation = node->generation;
}

static void begin_newgen(uint32_t at, uint32_t world, struct order *ret) {
        const struct node *node = &job_on(at)->machine.node;

        begin_order(at, ORDER_NEWGEN, ret);
        ret->generation.number++;
        ret->comm = ret->generation;
        ret->world = world;
        ret->torn = true;
        ret->n_tracks = node->n_tracks;
        memset(ret->mark, 0, node->n_tracks * sizeof(ret->mark[0]));
        order_name_nodes(ret, (struct nodeset){ (uint64_t[]){ UINT64_C(1) << node->config.address }, 1 });
}

static void name_member(struct order *newgen, uint32_t at, uint32_t index) {
        const struct report_member *member = &job_on(at)->machine.node.member[index];

        newgen->member_of[newgen->n_members++] = (struct order_member){ .member = member->request.member,
                                                                        .tag = member->tag,
                                                                        .rank = member->rank,
                                                                        .slot = member->slot,
                                                                        .id = member->id };
}

/* The first node has let go of its generation, and nothing comes from the coordinator. */
static void settle_first(void) {
        form_four();
        for (enum order_kind kind = ORDER_FREEZE; kind <= ORDER_VERDICT; kind++) {
                struct order next;

                begin_order(0, kind, &next);
                next.n_tracks = job_on(0)->machine.node.n_tracks;
                memset(next.mark, 0, next.n_tracks * sizeof(next.mark[0]));
                if (kind != ORDER_CUT)
                        give_order(&job_on(0)->machine.attachment, &next);
                until(kind != ORDER_ABORT || job_on(0)->machine.node.phase == NODE_ABORTED);
        }
        assert_int_equal(job_on(0)->machine.node.phase, NODE_SETTLED);
}

NODES_TEST(a_member_is_left_out_of_its_generation, THREE_AVG) {
        struct order newgen;

        settle_first();
        begin_newgen(0, 4, &newgen);
        name_member(&newgen, 0, 1);
        give_order(&job_on(0)->machine.attachment, &newgen);
        assert_int_equal(job_on(0)->generation, 2);
        assert_int_equal(job_on(0)->n_local, 1);
        assert_true(cluster->trainer[0].evicted);
        assert_true(has_said(0, "has no place in generation 2; join anew"));
        assert_false(cluster->trainer[1].evicted);
        cluster->gone = cluster->trainer[0];
        munmap(cluster->gone.arena[0], cluster->gone.arena_bytes[0]);
        cluster->trainer[0] = cluster->gone = (struct trainer){ 0 };
        settle();
}

TEST(members_of_a_generation_have_ranks_of_their_own) {
        struct order newgen;

        begin_newgen(0, 4, &newgen);
        name_member(&newgen, 0, 0);
        name_member(&newgen, 0, 1);
        assert_true(order_valid(&newgen));
        newgen.member_of[1].rank = newgen.member_of[0].rank;
        assert_false(order_valid(&newgen));
        newgen.member_of[1].rank = 4;
        assert_false(order_valid(&newgen));
}

NODES_TEST(a_generation_is_larger_than_its_members_want, THREE_AVG) {
        struct order newgen;

        settle_first();
        begin_newgen(0, 5, &newgen);
        name_member(&newgen, 0, 0);
        name_member(&newgen, 0, 1);
        give_order(&job_on(0)->machine.attachment, &newgen);
        assert_int_equal(job_on(0)->state, JOB_LOST);
        assert_non_null(strstr(job_on(0)->loss_text, "wants a generation of 5 members"));
        settle();
}

/* Its members have begun a step of it, but it is closed in this generation. */
NODES_TEST(a_plan_that_has_a_track_is_not_rejected, THREE_AVG) {
        struct order newgen, reject;

        settle_first();
        begin_newgen(0, 4, &newgen);
        name_member(&newgen, 0, 0);
        name_member(&newgen, 0, 1);
        newgen.plan[newgen.n_plans++] = (struct order_plan){ .track = TRACK_STEP };
        give_order(&job_on(0)->machine.attachment, &newgen);
        give(0);
        begin_order(0, ORDER_REJECT, &reject);
        reject.refusal.code = WIRE__CODE__PLAN_MISMATCH;
        give_order(&job_on(0)->machine.attachment, &reject);
        give(1);
        assert_int_equal(job_on(0)->machine.node.n_plans, 1);
        assert_int_equal(plan_unit(plan_of(0)), UNIT_WANTED);
        for (uint32_t n = 0; n < 3; n++)
                cluster->node[n].gone = true; /* the first one is in a generation that no other knows */
}

/* ---- a node that has counted too far ---- */

/* Each would have to be told of numbers that cannot be said. */
static void assert_all_end(void) {
        join(0, 0, 3);
        join(1, 1, 3);
        for (uint32_t n = 0; n < 3; n++) {
                until(job_on(n) == NULL);
                assert_true(has_said(n, "no up-to-date rank is left"));
        }
}

NODES_TEST(the_last_generation_is_over, THREE_AVG) {
        join(2, 2, 3);
        job_on(2)->machine.node.generation.number = LIMIT_GENERATION;
        assert_all_end();
}

NODES_TEST(what_is_prepared_can_be_said_to_others, THREE_AVG) {
        struct report report;

        report_clear(&report);
        report.kind = ANSWER_REPORT;
        report.stamp = report.n_tracks = 1;
        report.mark[0] = report.committed[0] = report.prepared[0] = LIMIT_NUMBER;
        assert_true(report_valid(&report));
        report.prepared[0]++;
        assert_false(report_valid(&report));
}

NODES_TEST(the_last_step_is_over, THREE_AVG) {
        join(2, 2, 3);
        job_on(2)->machine.node.member[0].tag = (struct tag){ .step = LIMIT_NUMBER };
        assert_all_end();
}

/* ---- nodes that have not compared what they say that they have ---- */

static struct comm_words called(uint32_t at) {
        struct comm_words words;

        spread_words(job_on(at), &words);
        return words;
}

TEST(what_was_compared_is_what_is_called_here) {
        struct comm_words words;

        stage_all(4);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__ALLREDUCE, 64), 0);
        words = called(0);
        words.word[2] = words.word[3] = STAGING;
        assert_int_equal(operation_compared(job_on(0), true, &words), -EPROTO);
        words = called(0);
        words.largest = 4;
        assert_int_equal(operation_compared(job_on(0), true, &words), -EPROTO);
        settle();
}

FORMED_TEST(a_node_without_members_does_what_can_be_done, THREE_FOR_TWO) {
        enum { GATHER = WIRE__OPERATION_KIND__ALLGATHER, REDUCE = WIRE__OPERATION_KIND__ALLREDUCE };
        static const struct comm_words cannot[] = {
                { .word = { 1, REDUCE, 64, 64, 99, WIRE__REDUCE__SUM } },
                { .word = { 1, REDUCE, 64, 64, WIRE__DTYPE__F32, 99 } },
                { .word = { 1, GATHER, UINT64_C(1) << 62, 64, WIRE__DTYPE__F32, 99 } },
                { .word = { 1, GATHER, 65, 64, WIRE__DTYPE__F32, 99 } }, /* its seals would have no room */
                { .word = { 1, 0, 64, 64, WIRE__DTYPE__F32, 99 } },
                { .word = { 1, REDUCE + 1, 64, 64, WIRE__DTYPE__F32, 99 } },
        };

        lose(3);
        until(all_entered(2));
        assert_int_equal(job_on(2)->n_local, 0);
        for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++)
                assert_int_equal(operation_compared(job_on(2), true, &cannot[i]), -EPROTO);
        settle();
}
