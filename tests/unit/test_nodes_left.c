/* SPDX-License-Identifier: Apache-2.0 */
/* A job over several nodes one of whose daemons ends, and leaves its part to the next one; and one that is
 * cut off, and loses a member meanwhile. */
#include "nodes_fixture.h"

/* Members of the last node are about to go to the next daemon. */
static void leave_last(void) {
        jobs_drain(cluster->node[2].jobs);
        jobs_suspend(cluster->node[2].jobs);
}

static void end_last(void) {
        job_on(2)->machine.attachment.stays = false; /* no daemon follows */
        lose(3);
        settle(); /* nothing is on its way to it any more */
        free_station(&cluster->node[2]);
        cluster->n = 2;
        settle();
}

#define TEST(name) FORMED_TEST(name, THREE_AVG)

TEST(it_begins_no_operation) {
        leave_last();
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        settle();
        for (uint32_t n = 0; n < 3; n++)
                assert_int_equal(cluster->node[n].operations + cluster->node[n].refused, 0);
        assert_int_equal(job_on(2)->operation.n_calls, 0);
        end_last();
}

/* Its members could not be told, and some of them are gone already. */
TEST(it_hears_of_no_loss) {
        leave_last();
        lose(2);
        until(job_on(0)->state == JOB_REPLACING);
        settle();
        assert_int_equal(job_on(2)->state, JOB_RUNNING);
        assert_int_equal(job_on(2)->machine.node.phase, NODE_RUNNING);
        end_last();
}

/* The communicator of the next generation is being built when the node leaves. */
TEST(it_enters_no_generation) {
        cluster->fabric->node[2].launch_error = -EIO;
        give_all(4);
        until(job_on(2)->state == JOB_REPLACING);
        cluster->fabric->node[2].launch_error = 0;
        until(job_on(2)->machine.node.phase == NODE_BUILDING);
        leave_last();
        settle();
        assert_int_equal(job_on(2)->generation, 1);
        end_last();
}

/* The node is in a generation of which its members have not heard. They would come to the next daemon as
 * members of the generation before. Only a daemon that has no more time goes. */
TEST(it_stays_until_its_members_have_heard_of_a_generation) {
        struct jobs *jobs = cluster->node[2].jobs;

        cluster->trainer[3].member->returns = true;
        jobs_drain(jobs);
        for (uint32_t before = 1; before <= 2; before++) {
                assert_false(jobs_busy(jobs));
                fake_accuse(&cluster->fabric->node[0], 2);
                until(job_on(2)->machine.node.generation.number == before + 1);
                assert_int_equal(job_on(2)->generation, before);
                assert_true(jobs_busy(jobs));
                if (before == 1)
                        until(job_on(2)->generation == 2);
        }
        jobs_end(jobs);
        assert_false(jobs_busy(jobs));
        jobs_suspend(jobs);
        end_last();
}

/* Those that would not come back anyway, and a coordinator that is not heard of. */
TEST(it_stays_for_nobody_else) {
        struct jobs *jobs = cluster->node[2].jobs;
        struct node *node;

        jobs_drain(jobs);
        fake_accuse(&cluster->fabric->node[0], 2);
        node = &job_on(2)->machine.node;
        until(node->generation.number == 2);
        assert_false(jobs_busy(jobs));
        cluster->trainer[3].member->returns = true;
        assert_true(jobs_busy(jobs));
        node->suspended = true;
        assert_false(jobs_busy(jobs));
        node->suspended = false;
        until(job_on(2)->generation == 2);
        leave_last();
        end_last();
}

/* The others go on without it at once. */
FORMED_TEST(a_node_without_members_is_not_awaited, THREE_FOR_TWO) {
        struct jobs *jobs = cluster->node[2].jobs;

        lose(3);
        until(all_entered(2));
        assert_int_equal(job_on(2)->n_local, 0);
        jobs_drain(jobs);
        assert_true(jobs_depart(jobs));
        jobs_suspend(jobs);
        settle();
        free_station(&cluster->node[2]);
        cluster->n = 2;
        until(job_on(0)->generation == 3 && job_on(1)->generation == 3);
}

/* It says that it goes when the others are about to enter a generation with it, or have just been told to. */
TEST(a_generation_that_is_on_its_way_comes_first) {
        struct jobs *jobs = cluster->node[2].jobs;

        cluster->trainer[3].member->returns = true;
        fake_accuse(&cluster->fabric->node[0], 2);
        until(job_on(2)->machine.node.phase == NODE_SETTLED);
        jobs_drain(jobs);
        assert_false(jobs_busy(jobs));
        assert_false(jobs_depart(jobs));
        until(jobs_busy(jobs));
        assert_false(job_on(2)->machine.node.away);
        until(!jobs_busy(jobs) && jobs_depart(jobs));
        assert_int_equal(job_on(2)->generation, job_on(2)->machine.node.generation.number);
        assert_false(job_on(2)->machine.attachment.stays); /* its last member may leave for good meanwhile */
        jobs_suspend(jobs);
        settle();
        assert_int_equal(job_on(0)->machine.node.generation.number, job_on(2)->generation);
        end_last();
}

/* The node says that it goes. Returns whether its daemon may go now. */
static bool departs(uint32_t n) {
        machine_depart(job_on(n));
        jobs_advance(cluster->node[n].jobs);
        return machine_has_departed(job_on(n));
}

/* It has let go of the generation before, and says that it goes: it would not enter the next one. */
TEST(the_others_enter_no_generation_without_it) {
        fake_accuse(&cluster->fabric->node[0], 2);
        until(job_on(2)->machine.node.phase == NODE_FROZEN);
        assert_true(departs(2));
        settle();
        for (uint32_t n = 0; n < 3; n++) {
                assert_int_equal(job_on(n)->machine.node.phase, NODE_SETTLED);
                assert_int_equal(job_on(n)->machine.node.generation.number, 1);
        }
        assert_false(departs(1));
        settle(); /* it is told at once that it may go, too */
        assert_true(departs(1));
        leave_last();
        end_last();
}

/* It is on its way back into the generation, as if its members were, when one of them is lost; and then the
 * others lose a node. */
TEST(a_node_that_is_cut_off_hears_of_losses) {
        fence_off(0);
        until(job_on(0)->state == JOB_REPLACING && job_on(0)->machine.node.phase == NODE_BUILDING);
        lose(0);
        until(job_on(0)->machine.node.phase == NODE_FROZEN);
        assert_false(job_on(0)->machine.node.interrupted);
        lose_node(1, 2);
        until(job_on(0)->machine.node.interrupted);
        assert_int_equal(job_on(0)->state, JOB_REPLACING);
        settle();
}

/* ---- a daemon that connects again ---- */

static void hang_up_last(void) {
        settle();
        stations_down(cluster->stations, &cluster->node[2]);
        remote_down(cluster->node[2].remote);
}

static void connect_last(void) {
        const uint8_t node[STATION_NODE] = { 2 };

        assert_int_equal(stations_up(cluster->stations, &cluster->node[2], node, 1), 0);
        remote_up(cluster->node[2].remote);
        settle();
}

static void count_empty(void *to, uint32_t address, const struct hub_sight *sight) {
        ++*(uint32_t *)to;
}

/* Daemons that are connected and have no node of the job. */
static uint32_t empty_daemons(void) {
        const struct hub_job job = { .uid = 1000, .name = "j", .address = HUB_UNKNOWN };
        uint32_t n = 0;

        stations_each_empty(cluster->stations, &job, count_empty, &n);
        return n;
}

/* Lets so much time pass that a connected daemon has named all of its jobs. */
static void pass_abandon(void) {
        stations_ahead += unhurried.times.abandon + unhurried.times.death;
        stations_tick(cluster->stations);
}

/* Nothing comes from it any more. */
static void forget_last(void) {
        lose(3);
        cluster->node[2].gone = true;
}

TEST(what_is_there_is_found_again) {
        step_of(ALL, 1);
        hang_up_last();
        connect_last();
        pass_abandon();
        assert_int_equal(empty_daemons(), 0);
        step_of(ALL, 2);
}

/* The coordinator could not be told. */
TEST(what_has_gone_meanwhile_is_dropped) {
        hang_up_last();
        hub_detach(&job_on(2)->machine.attachment);
        connect_last();
        assert_int_equal(empty_daemons(), 0);
        pass_abandon();
        assert_int_equal(empty_daemons(), 1);
        until(job_on(0)->state == JOB_REPLACING);
        forget_last();
}

/* Members of a job that is over may hang: its daemon does not name it again. */
NODES_TEST(what_has_ended_is_dropped, THREE_AVG) {
        cluster->grace = 0;
        form_four();
        lose(0);
        until(job_on(2)->machine.attachment.ended);
        hang_up_last();
        connect_last();
        assert_int_equal(empty_daemons(), 0);
        pass_abandon();
        assert_int_equal(empty_daemons(), 1);
}

/* The connection breaks before the node has heard that its job has ended. */
NODES_TEST(an_end_is_heard_on_the_next_connection, THREE_AVG) {
        cluster->grace = 0;
        form_four();
        hang_up_last();
        lose(0);
        settle();
        assert_false(job_on(2)->machine.attachment.ended);
        connect_last();
        test_clock += unhurried.times.heartbeat; /* what was lost is said again */
        until(job_on(2)->machine.attachment.ended);
        assert_int_equal(job_on(2)->state, JOB_LOST);
}

/* A daemon names a job twice, as one with an error might. */
TEST(a_job_that_is_named_twice_is_named_anew) {
        struct post_attach which = { .uid = 1000, .job = "j", .token = cluster->token.digest };
        uint8_t out[POST_MAX];

        for (uint32_t number = 98; number < 100; number++)
                assert_null(stations_receive(cluster->stations, &cluster->node[2], POST_ATTACH, number, out,
                                             (size_t)post_encode_attach(&which, out)));
        assert_int_equal(empty_daemons(), 0);
        until(job_on(0)->state == JOB_REPLACING);
        forget_last();
}

/* Its key may be another one than before. */
TEST(uids_of_a_key_are_asked_again) {
        hang_up_last();
        speaks_for_nobody = true;
        connect_last();
        until(job_on(2)->state == JOB_LOST);
        assert_non_null(strstr(job_on(2)->loss_text, "admits no jobs of uid 1000 from this host"));
        forget_last();
}

TEST(all_nodes_hear_that_a_key_has_lost_their_uid) {
        speaks_for_nobody = true;
        stations_check(cluster->stations);
        for (uint32_t n = 0; n < 3; n++) {
                until(job_on(n)->state == JOB_LOST);
                assert_non_null(strstr(job_on(n)->loss_text, "admits no jobs of uid 1000 from this host"));
                cluster->node[n].gone = true;
        }
}

TEST(an_address_has_one_node_of_a_job) {
        const struct hub_job job = { .uid = 1000, .name = "j", .address = 2, .token = cluster->token.digest };
        struct attachment another = { 0 };

        assert_int_equal(hub_attach(coordinators_hub(cluster->coordinators), &another, &job,
                                    &cluster->refusal),
                         WIRE__CODE__STATE);
        assert_non_null(strstr(cluster->refusal.text, "has not ended there yet; try again"));
        step_of(ALL, 1);
}

/* ---- a daemon with all members of a job, whose coordinator is out of reach ---- */

static void form_two_there(void) {
        join(2, 0, 2);
        join(2, 1, 2);
        until(cluster->trainer[0].member != NULL && cluster->trainer[1].member != NULL);
        bring(0);
        bring(1);
        hang_up_last();
}

static void end_without_coordinator(void) {
        give_all(2);
        lose(0);
        lose(1);
        settle();
        assert_int_equal(cluster->node[2].committed, 1);
        assert_null(job_on(2));
}

NODES_TEST(a_step_that_goes_on_is_the_end_of_its_job, THREE_AVG) {
        form_two_there();
        end_without_coordinator();
}

NODES_TEST(a_step_that_is_held_and_complete_is_the_end_of_its_job, THREE_AVG) {
        form_two_there();
        job_pause(job_on(2));
        end_without_coordinator();
}
