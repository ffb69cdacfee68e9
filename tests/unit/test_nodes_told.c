/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator says of a job that has ended here, or whose member has left, before that was heard. */
#include "nodes_fixture.h"

#define TEST(name) NODES_TEST(name, THREE_AVG)

static void leave(uint32_t rank) {
        struct trainer *trainer = &cluster->trainer[rank];
        struct member *member = trainer->member;

        for (uint32_t plan = 0; plan < MOST_PLANS; plan++)
                munmap(trainer->arena[plan], trainer->arena_bytes[plan]);
        *trainer = (struct trainer){ 0 };
        member_gone(member, WIRE__CAUSE__LEAVING);
}

/* A later incarnation has begun on this daemon. */
TEST(a_job_that_has_ended_hears_of_a_loss) {
        form_four();
        lose(2);
        job_end(job_on(0), WIRE__CAUSE__SUPERSEDED);
        settle();
        assert_int_equal(job_on(0)->state, JOB_LOST);
}

TEST(a_job_ends_before_its_generation_is_entered) {
        form_four();
        fake_accuse(&cluster->fabric->node[0], 2);
        until(job_on(0)->machine.node.phase == NODE_BUILDING);
        job_end(job_on(0), WIRE__CAUSE__SUPERSEDED);
        settle();
        assert_int_equal(job_on(0)->state, JOB_LOST);
}

static bool is_building(void) {
        return job_on(0)->machine.node.phase == NODE_BUILDING;
}

/* The first node has the communicator of the next generation last. */
static void await_communicator(void) {
        until(is_building());
        cluster->fabric->node[0].held = true;
        rest();
}

/* … in the same pass of the loop, before the coordinator has heard of anything. */
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

TEST(a_member_leaves_before_its_generation_is_entered) {
        form_four();
        fake_accuse(&cluster->fabric->node[0], 2);
        await_communicator();
        leave(0);
        build_communicator();
        assert_missing();
}

TEST(a_member_is_lost_before_its_generation_is_entered) {
        form_four();
        fake_accuse(&cluster->fabric->node[0], 2);
        await_communicator();
        lose(0);
        build_communicator();
        assert_missing();
}

/* It is still waiting for its place. */
TEST(a_newcomer_leaves_before_its_generation_is_entered) {
        for (uint32_t rank = 0; rank < 4; rank++)
                join(rank < 2 ? 0 : rank - 1, rank, 4);
        await_communicator();
        member_gone(list_entry(job_on(0)->members.next, struct member, link), WIRE__CAUSE__LEAVING);
        build_communicator();
        assert_int_equal(job_on(0)->n_local, 1);
        settle();
}

TEST(a_job_is_refused_before_its_generation_is_entered) {
        form_four();
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
