/* SPDX-License-Identifier: Apache-2.0 */
/* A job over several nodes: the results that its members get, and how the job goes on after a loss. */
#include "nodes_fixture.h"

#include <math.h>

#include "job/view.h"
#include "job/watch/stall.h"
#include "job/watch/waits.h"

FORMED_TEST(members_get_the_sums_of_all, ONE_AVG, TWO_AVG, THREE_SUM, THREE_MIN) {
        for (uint64_t step = 1; step <= 3; step++)
                step_of(ALL, step);
        for (uint32_t n = 0; n < cluster->n && cluster->n > 1; n++) {
                assert_int_equal(cluster->fabric->node[n].n_payloads, 3 * pieces_of(n, BUCKETS));
                assert_int_equal(cluster->fabric->node[n].n_votes, 3 * 2); /* and comparisons */
                assert_int_equal(cluster->fabric->node[n].n_fillers, 0);
        }
}

/* A job on one node asks the engine for nothing. */
FORMED_TEST(one_node_needs_no_engine, ONE_AVG) {
        step_of(ALL, 1);
        assert_null(plan_of(0)->exchange);
        assert_int_equal(cluster->fabric->n_comms, 0);
}

FORMED_TEST(statistics_are_of_what_all_hold, ONE_AVG, THREE_AVG) {
        for (uint64_t step = 1; step <= 2; step++) {
                double squares = 0;

                step_of(ALL, step);
                for (uint32_t b = 0; b < BUCKETS; b++)
                        for (uint64_t i = 0; i < bucket_bytes(b) / dtype_size(cluster->dtype); i++) {
                                double value = whole_of(ALL, 0, step, b, 0, i);

                                squares += value * value;
                        }
                for (uint32_t n = 0; n < cluster->n; n++)
                        assert_true(job_on(n)->norm == sqrt(squares));
        }
}

/* Each node has the measures of every rank's input, whichever node the rank is on. */
FORMED_TEST(inputs_are_measured_for_all, ONE_AVG, TWO_AVG, THREE_AVG) {
        for (uint64_t step = 1; step <= 2; step++) {
                step_of(ALL, step);
                for (uint32_t b = 0; b < BUCKETS; b++)
                        for (uint32_t rank = 0; rank < 4; rank++) {
                                double squares = 0;

                                for (uint64_t i = 0; i < bucket_bytes(b) / dtype_size(cluster->dtype); i++)
                                        squares +=
                                                value_of(rank, 0, step, b, i) * value_of(rank, 0, step, b, i);
                                for (uint32_t n = 0; n < cluster->n; n++)
                                        assert_true(cluster->node[n].squares[b][rank] == squares);
                        }
        }
}

/* Rank 3 has two values that are not finite in this bucket. */
static void give_with_inf(uint32_t bucket) {
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t b = 0; b < BUCKETS; b++) {
                        struct trainer *trainer = &cluster->trainer[rank];

                        for (uint64_t i = 0; i < bucket_bytes(b) / dtype_size(cluster->dtype); i++)
                                put(cluster->dtype, trainer->arena[0] + bucket_offset(b), i,
                                    rank == 3 && b == bucket && (i == 5 || i == 7) ? (double)INFINITY : 1);
                        assert_int_equal(ready_of(rank, 0, b, 0), 0);
                }
}

/* For step 2. */
static void assert_blamed(uint32_t n, uint32_t bucket) {
        const struct nonfinite *blame = &job_on(n)->blame;
        const struct record *record = job_on(n)->record;
        char parameter[16];

        snprintf(parameter, sizeof(parameter), "p%u", bucket);
        assert_int_equal(job_on(n)->nonfinite, 2);
        assert_int_equal(blame->step, 2);
        assert_int_equal(blame->rank, 3);
        assert_int_equal(blame->ranks, 1);
        assert_int_equal(blame->count, 2);
        assert_int_equal(blame->bucket, bucket);
        assert_string_equal(blame->parameter, parameter);
        assert_int_equal(blame->pid, n == cluster->n - 1 ? getpid() : 0);
        assert_int_equal(record->totals.nonfinite_steps, 1);
        if (n == cluster->n - 1)
                assert_int_equal(record_nonfinite(record_next(record, 1), bucket)[job_on(n)->n_local - 1], 2);
        for (uint32_t b = 0; b < BUCKETS; b++)
                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_int_equal(cluster->node[n].nonfinite[b][rank],
                                         rank == 3 && b == bucket ? 2 : 0);
}

static void blame_for(uint32_t bucket) {
        form_four();
        give_all(4);
        until(all_committed(1));
        give_with_inf(bucket);
        until(all_committed(2));
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_blamed(n, bucket);
        give_all(4);
        until(all_committed(3));
        assert_int_equal(job_on(0)->nonfinite, 0);
}

/* Each node names the rank and the parameter of the value. */
NODES_TEST(what_is_not_finite_is_named_on_each_node, ONE_AVG, TWO_AVG, THREE_AVG, TWO_MAX) {
        blame_for(2);
}

/* Workers look for the value. Meanwhile its bucket keeps the measures. */
NODES_TEST(what_is_not_finite_is_looked_for_in_a_large_bucket, ONE_AVG, THREE_AVG) {
        cluster->large = 2;
        blame_for(2);
}

static void assert_waits(uint32_t node, const char *expected) {
        struct job_wait waits[4];
        char text[WAIT_TEXT];

        assert_int_equal(job_waits(job_on(node), waits, 4), 1);
        assert_int_equal(waits[0].kind, WAIT_NODES);
        assert_null(waits[0].member);
        wait_text(job_on(node), &waits[0], text);
        assert_string_equal(text, expected);
}

/* Every wait has a name, also where no member is to blame. */
FORMED_TEST(what_hangs_between_nodes_is_named, THREE_AVG) {
        uint64_t since = clock_now();

        stage_all(4);
        cluster->fabric->hangs = true;
        give_all(4);
        settle();
        for (uint32_t n = 0; n < 3; n++)
                assert_waits(n, n == 0   ? "the exchange of bucket 0 with nodes 1, 2"
                                : n == 1 ? "the exchange of bucket 0 with nodes 0, 2"
                                         : "the exchange of bucket 0 with nodes 0, 1");
        stall_check(job_on(0), since + 4000 * USEC_PER_SEC);
        assert_true(
                has_said(0,
                         "job 'j', step 1: waiting 4000.0 s for the exchange of bucket 0 with nodes 1, 2"));
        assert_false(cluster->trainer[0].evicted);
        fabric_go_on(cluster->fabric);
        until(all_committed(1));
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        settle();
        assert_waits(1, "an operation with nodes 0, 2");
        assert_int_equal(call(3, WIRE__OPERATION_KIND__BARRIER, 0), 0);
        until(cluster->node[1].operations == 1);
}

/* The wait for a vote is named, also on nodes that have cast theirs. */
FORMED_TEST(a_vote_that_is_awaited_is_named, THREE_AVG) {
        struct fake_engine *last = &cluster->fabric->node[2];

        give_all(4);
        hear_until(last, cluster->fabric->node[0].n_votes == 2); /* the last node is one collective behind */
        settle();
        assert_waits(0, "the vote of nodes 1, 2");
        last->held = false;
        until(all_committed(1));
}

/* The wait for a bucket is named, also if some of its pieces are here. The other nodes have all of them, or
 * none. */
FORMED_TEST(a_piece_that_is_awaited_is_named, THREE_AVG) {
        struct fake_engine *last = &cluster->fabric->node[2];
        const struct bucket *bucket = &plan_of(0)->bucket[BUCKETS - 1];

        give_all(4);
        hear_until(last, bucket->state >= BUCKET_FANNING_OUT); /* the last node is one collective behind */
        settle();
        assert_int_equal(bucket->state, PIECE_BYTES > 0 ? BUCKET_FANNING_OUT : BUCKET_DONE);
        assert_waits(0,
                     PIECE_BYTES > 0 ? "the exchange of bucket 5 with nodes 1, 2" : "the vote of nodes 1, 2");
        last->held = false;
        until(all_committed(1));
        assert_sums(ALL, 1);
}

/* ---- members of a node, and ranks of the world ---- */

/* The job keeps its own members by their place on the node: those of the second node have ranks 2 and 3. */
FORMED_TEST(places_on_a_node_are_no_ranks, TWO_AVG) {
        const struct record_step *step;
        struct job_view view;
        struct job *job = job_on(1);

        assert_int_equal(job->world, 4);
        assert_int_equal(job->n_local, 2);
        for (uint32_t local = 0; local < 2; local++) {
                assert_ptr_equal(job->local[local], cluster->trainer[2 + local].member);
                assert_int_equal(job->local[local]->local, local);
                assert_ptr_equal(member_of_rank(job, 2 + local), job->local[local]);
                assert_null(member_of_rank(job, local));
        }
        give(2);
        view_job(job, clock_now(), &view);
        assert_int_equal(view.n_waits, 1);
        assert_int_equal(view.wait[0].rank, 3);
        assert_string_equal(view_member(job->local[0], &view).state, "waiting");
        assert_string_equal(view_member(job->local[1], &view).state, "late");
        lose(2);
        come_back(2, 1);
        assert_int_equal(plan_of(1)->part[0].state, PART_NONE);
        assert_int_equal(plan_of(1)->part[1].state, PART_MAPPED);
        bring(2);
        settle();
        step_of(ALL, 1);
        step = record_next(job->record, 1);
        assert_int_equal(step->world, 4);
        assert_int_equal(record_rank(step, 0), 2);
        assert_int_equal(record_rank(step, 1), 3);
        assert_true(record_ready_times(step, 0)[1] > 0);
        assert_int_equal(job->record->pid[0], 0);
        assert_int_equal(job->record->pid[3], getpid());
}

/* There would be a sum of two members, for four. */
FORMED_TEST(nothing_is_summed_without_the_other_nodes, TWO_AVG) {
        struct offer begin = { .generation = 1, .plan = 1, .params = 1, .buckets = 1 };
        struct jobs_config *config = &cluster->node[1].jobs->config;
        struct engine *engine = config->engine;

        stage_all(4);
        config->engine = NULL;
        assert_int_equal(plan_begin(cluster->trainer[2].member, &begin, &cluster->refusal),
                         WIRE__CODE__UNSUPPORTED);
        assert_non_null(strstr(cluster->refusal.text, "only 2 of its 4 members are on this node"));
        assert_int_equal(ready_of(2, 0, 0, 0), WIRE__CODE__UNSUPPORTED);
        for (unsigned kind = WIRE__OPERATION_KIND__BARRIER; kind <= WIRE__OPERATION_KIND__ALLREDUCE; kind++)
                assert_int_equal(call(2, kind, 64), WIRE__CODE__UNSUPPORTED);
        config->engine = engine;
}

FORMED_TEST(divisors_are_compared_between_nodes, TWO_AVG) {
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(ready_of(rank, 0, 0, rank < 2 ? 4 : 3), 0);
        until(cluster->trainer[0].evicted && cluster->trainer[2].evicted);
        assert_int_equal(cluster->fabric->node[1].n_payloads, 0);
        assert_true(has_said(0, "divides by 4, members of another node by 3"));
        assert_true(has_said(1, "divides by 3, members of another node by 4"));
}

/* The nodes differ in a layout, as daemons of different releases might. */
FORMED_TEST(what_goes_between_nodes_is_compared, TWO_AVG) {
        plan_of(1)->reference->bucket[3].n--;
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(ready_of(rank, 0, 0, 0), 0);
        until(cluster->trainer[0].evicted && cluster->trainer[2].evicted);
        assert_int_equal(cluster->fabric->node[1].n_payloads, 0);
        assert_true(has_said(0, "install the same release of gradsyncd on all nodes"));
}

NODES_TEST(how_buckets_are_cut_is_compared, TWO_AVG) {
        cluster->node[1].jobs->config.piece_bytes = 64;
        form_four();
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(ready_of(rank, 0, 0, 0), 0);
        until(cluster->trainer[0].evicted && cluster->trainer[2].evicted);
        assert_int_equal(cluster->fabric->node[1].n_payloads, 0);
        assert_true(has_said(1, "install the same release of gradsyncd on all nodes"));
}

/* Steps have come to the same ends on all nodes. */
static void assert_alike(void) {
        for (uint32_t n = 1; n < cluster->n; n++) {
                assert_int_equal(cluster->node[n].committed, cluster->node[0].committed);
                assert_int_equal(cluster->node[n].voided, cluster->node[0].voided);
        }
}

/* ---- plans that share a lane: the third one and all after it ---- */

static void form_with_plans(void) {
        form_four();
        for (uint32_t plan = 1; plan < MOST_PLANS; plan++)
                for (uint32_t rank = 0; rank < 4; rank++)
                        bring_plan(rank, plan, "q");
        settle();
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_int_equal(plan_find(job_on(n), 3)->track, TRACK_STEP + 3);
}

/* A member of another node gives them in the opposite order. */
static void give_both(uint32_t rank, uint32_t first, uint32_t second) {
        bool here = cluster->trainer[rank].station == &cluster->node[0];

        give_to(rank, here ? first : second);
        settle();
        give_to(rank, here ? second : first);
}

NODES_TEST(plans_take_turns_on_a_lane, TWO_AVG, THREE_SUM) {
        form_with_plans();
        for (uint64_t step = 1; step <= 3; step++) {
                for (uint32_t rank = 0; rank < 4; rank++)
                        give_both(rank, 2 + step % 2, 3 - step % 2);
                until(all_committed(2 * (unsigned)step));
                assert_sums_of(ALL, 2, step);
                assert_sums_of(ALL, 3, step);
        }
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t plan = MOST_PLANS; plan-- > 0;)
                        give_to(rank, plan);
        until(all_committed(6 + MOST_PLANS));
        for (uint32_t plan = 0; plan < MOST_PLANS; plan++)
                assert_sums_of(ALL, plan, plan < 2 ? 1 : 4);
        assert_int_equal(cluster->fabric->node[0].n_fillers, 0);
}

/* A step may need another one before it can become full. */
NODES_TEST(what_is_not_full_keeps_no_other_plan_from_the_lane, TWO_AVG) {
        form_with_plans();
        for (uint32_t rank = 0; rank < 4; rank++)
                fill(rank, 2, 0);
        for (uint32_t rank = 0; rank < 4; rank++)
                give_to(rank, 3);
        until(all_committed(1));
        assert_sums_of(ALL, 3, 1);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t b = 1; b < BUCKETS; b++)
                        fill(rank, 2, b);
        until(all_committed(2));
        assert_sums_of(ALL, 2, 1);
}

/* Units that are open on a shared lane end alike on all nodes. The next generation has turns of its own. */
NODES_TEST(a_loss_on_a_shared_lane_leaves_no_difference, TWO_AVG, THREE_SUM) {
        form_with_plans();
        for (unsigned moment = 0; moment < MOMENTS(24); moment++) {
                for (uint32_t rank = 0; rank < 4; rank++)
                        for (uint32_t i = 0; i < 2; i++)
                                give_to(rank,
                                        cluster->trainer[rank].station == &cluster->node[0] ? 2 + i : 3 - i);
                for (unsigned i = 0; i < moment; i++)
                        pass();
                lose(2);
                settle();
                assert_alike();
                come_back(2, 1);
                for (uint32_t plan = 0; plan < MOST_PLANS; plan++)
                        bring_plan(2, plan, plan == 0 ? "p" : "q");
                settle();
                memcpy(cluster->trainer[2].step, cluster->trainer[0].step, sizeof(cluster->trainer[2].step));
        }
        assert_true(cluster->node[0].committed > 0 && cluster->node[0].voided > 0);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

/* ---- a member is lost ---- */

FORMED_TEST(a_lost_member_costs_a_step_and_no_communicator, TWO_AVG, THREE_AVG) {
        uint32_t last = cluster->n - 1;

        step_of(ALL, 1);
        give_all(3);
        ready(3, 0);
        ready(3, 1);
        settle();
        assert_int_equal(cluster->fabric->node[last].n_payloads,
                         pieces_of(last, BUCKETS) + pieces_of(last, 2));
        lose(3);
        until(cluster->node[0].voided == 1 && cluster->node[last].voided == 1);
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_non_null(strstr(job_on(n)->loss_text, "lost rank 3 (pid "));
        assert_int_equal(member_check(cluster->trainer[0].member, &cluster->refusal), WIRE__CODE__VOID_RETRY);
        assert_int_equal(cluster->refusal.rank, 3);
        replace(3, last);
        assert_int_equal(job_on(0)->recovery.rank, 3);
        assert_int_equal(job_on(0)->recovery.successor, 0); /* it is on another node */
        assert_int_equal(job_on(last)->recovery.successor, getpid());
        step_of(ALL, 2);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

/* Another node has agreed on plans of which this one has not heard. */
FORMED_TEST(a_node_of_fewer_plans_hears_every_order, TWO_AVG) {
        step_of(ALL, 1);
        for (uint32_t plan = 1; plan <= 3; plan++)
                for (uint32_t rank = 0; rank < 2; rank++)
                        bring_plan(rank, plan, "q");
        settle();
        give(2);
        lose(1);
        until(cluster->node[1].voided == 1);
        replace(1, 0);
        step_of(ALL, 2);
}

FORMED_TEST(lanes_are_filled_up_to_the_same_number, TWO_AVG) {
        cluster->fabric->node[1].held = true; /* it has not seen the others' comparison yet */
        give_all(3);
        for (uint32_t b = 0; b < BUCKETS; b++)
                ready(3, b);
        settle();
        cluster->fabric->node[1].held = false;
        lose(2);
        until(cluster->node[0].voided + cluster->node[0].committed == 1);
        until(cluster->node[1].voided + cluster->node[1].committed == 1);
        assert_int_equal(cluster->node[0].committed, cluster->node[1].committed);
        replace(2, 1);
        step_of(ALL, cluster->node[0].committed + 1);
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_int_equal(cluster->fabric->comm[0].launched[0][n],
                                 cluster->fabric->comm[0].launched[0][0]);
}

/* Whenever it happens, what all have is what one has. */
FORMED_TEST(a_loss_at_any_moment_leaves_no_difference, TWO_AVG, THREE_SUM) {
        unsigned committed = 0, voided = 0;

        for (unsigned moment = 0; moment < MOMENTS(24); moment++) {
                uint64_t step = cluster->node[0].committed + 1;

                give_all(4);
                for (unsigned i = 0; i < moment; i++)
                        pass();
                lose(2);
                settle();
                assert_alike();
                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_false(cluster->trainer[rank].evicted);
                committed += cluster->node[0].committed == step;
                voided += cluster->node[0].committed < step;
                replace(2, 1);
        }
        assert_true(committed > 0 && voided > 0);
        step_of(ALL, cluster->node[0].committed + 1);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

FORMED_TEST(a_lost_node_costs_the_communicator, THREE_AVG) {
        step_of(ALL, 1);
        give_all(3);
        lose_node(2, 3);
        until(cluster->node[0].voided == 1 && cluster->node[1].voided == 1);
        replace(3, 1);
        step_of(ALL, 2);
        assert_int_equal(cluster->fabric->n_comms, 2);
        assert_int_equal(cluster->fabric->comm[1].n_peers, 2);
}

FORMED_TEST(a_way_that_breaks_costs_a_communicator, THREE_AVG) {
        step_of(ALL, 1);
        cluster->fabric->node[2].launch_error = -EIO;
        give_all(4);
        for (uint32_t n = 0; n < 3; n++) {
                until(job_on(n)->state == JOB_REPLACING);
                assert_non_null(strstr(job_on(n)->loss_text, "the way between its nodes broke after step 1"));
        }
        cluster->fabric->node[2].launch_error = 0;
        until(all_entered(2));
        step_of(ALL, 2); /* all of it once more */
        assert_true(all_voided(0));
        assert_int_equal(cluster->fabric->n_comms, 2);
}

FORMED_TEST(a_fenced_node_tells_its_members, THREE_AVG) {
        step_of(ALL, 1);
        for (uint32_t rank = 0; rank < 3; rank++)
                ready(rank, 0);
        ready(3, 0);
        settle();
        fence_off(2);
        until(cluster->node[2].voided == 1);
        assert_true(has_said(2, "the way between its nodes broke after step 1"));
        assert_int_equal(member_check(cluster->trainer[3].member, &cluster->refusal), WIRE__CODE__VOID_RETRY);
        until(job_on(2)->generation == 2 && cluster->node[0].voided == 1); /* it is taken again */
        step_of(ALL, 2);
}

/* All have given a step, and the others have committed it: the last node does not hear of its vote. */
static void commit_without_the_last(void) {
        struct fake_engine *last = &cluster->fabric->node[2];

        form_four();
        step_of(ALL, 1);
        give_all(4);
        hear_until(last, last->n_votes == 4);
        until(cluster->node[0].committed == 2 && cluster->node[1].committed == 2);
}

/* The other nodes have committed a step that the last one has not: its members hear of the number, and that
 * they need the state. */
NODES_TEST(a_node_that_lacks_a_step_counts_on_with_the_others, THREE_AVG) {
        struct fake_engine *last = &cluster->fabric->node[2];

        commit_without_the_last();
        fence_off(2);
        settle();
        last->held = false;
        until(cluster->node[2].voided == 1);
        until(job_on(0)->state == JOB_RUNNING && job_on(2)->state == JOB_RUNNING && job_on(0)->world == 4);
        assert_int_equal(plan_of(2)->step, 2);
        assert_int_equal(cluster->trainer[3].step[0], 3);
        for (uint32_t rank = 0; rank < 4; rank++) {
                assert_true(cluster->trainer[rank].behind);
                give(rank);
        }
        until(cluster->trainer[0].step[0] == 4 && cluster->trainer[3].step[0] == 4);
        assert_sums(ALL, 3);
}

/* The plan may not be open yet in the generation in which the nodes meet: a member has to bring it. */
NODES_TEST(a_node_that_lacks_a_step_counts_on_before_the_plan_is_open, THREE_AVG) {
        commit_without_the_last();
        fence_off(1);
        lose(2);
        fence_off(2);
        cluster->fabric->node[2].held = false;
        until(job_on(1) == NULL && cluster->node[2].voided == 1);
        join(1, 2, 4);
        until(job_on(2)->state == JOB_RUNNING && job_on(2)->world == 4 && cluster->trainer[2].member != NULL);
        assert_false(job_on(2)->machine.node.plan[0].open);
        assert_int_equal(plan_of(2)->step, 2);
        assert_int_equal(cluster->trainer[3].step[0], 3);
        bring(2);
        settle();
        give_all(4);
        until(cluster->trainer[0].step[0] == 4 && cluster->trainer[3].step[0] == 4);
        assert_sums(ALL, 3);
}

static bool journal_says_done(void) {
        return journal_trace(plan_of(0)->kept).done;
}

/* The node has said that it is not prepared: the journal must not tell the next daemon more. */
FORMED_TEST(what_ends_after_the_freeze_is_not_kept_as_done, TWO_AVG) {
        struct fake_engine *first = &cluster->fabric->node[0];

        step_of(ALL, 1);
        assert_true(journal_says_done());
        give_all(4);
        hear_until(first, first->n_payloads == 2 * pieces_of(0, BUCKETS));
        lose(3);
        until(job_on(0)->state == JOB_REPLACING);
        first->held = false;
        for (uint32_t done = 0; done < BUCKETS; done = plan_of(0)->n_done) {
                assert_int_equal(cluster->node[0].voided, 0);
                pass();
        }
        assert_false(journal_says_done());
        until(cluster->node[0].voided == 1);
}

/* Fillers for the members that are missing do not count as another plan. */
FORMED_TEST(whoever_has_begun_alone_is_not_blamed, TWO_AVG) {
        give(0);
        give(1);
        settle();
        lose(3);
        until(cluster->node[0].voided == 1);
        assert_int_equal(cluster->fabric->node[1].n_fillers, 1);
        assert_false(cluster->trainer[0].evicted);
        replace(3, 1);
        step_of(ALL, 1);
}

/* The engine still works on the staging memory when the last member frees the plan. */
FORMED_TEST(staging_outlives_its_plan, THREE_AVG) {
        struct job *job = job_on(2);

        give_all(3);
        ready(3, 1);
        until(plan_of(2)->exchange->compared);
        cluster->fabric->hangs = true;
        ready(3, 0);
        assert_int_equal(cluster->fabric->node[2].n_payloads, pieces_of(2, 2));
        settle();
        cluster->fabric->node[2].held = true;
        fence_off(2);
        until(cluster->node[2].voided == 1);
        assert_int_equal(plan_drop(cluster->trainer[3].member, 0, 12, &cluster->refusal), 0);
        assert_null(plan_of(2));
        assert_false(list_empty(&job->exchanges));
        cluster->fabric->node[2].held = false;
        until(list_empty(&job->exchanges));
}

/* The daemon ends while the engine works: the engine's hands are off its memory first. */
FORMED_TEST(an_engine_at_work_is_ended_before_its_memory, THREE_AVG) {
        struct station *last = &cluster->node[2];

        cluster->fabric->hangs = true;
        give_all(4);
        settle();
        assert_true(machine_engine_busy(job_on(2)));
        jobs_drain(last->jobs);
        jobs_suspend(last->jobs);
        lose(3);
        pass();
        free_station(last);
        cluster->n = 2;
        cluster->fabric->hangs = false;
        settle();
}

FORMED_TEST(what_hangs_is_aborted, TWO_AVG) {
        cluster->fabric->hangs = true;
        give_all(4);
        settle();
        assert_true(all_committed(0));
        lose(3);
        settle();
        assert_int_equal(cluster->node[0].voided, 0); /* it waits for the engine */
        fake_accuse(&cluster->fabric->node[0], 1);
        until(cluster->node[0].voided == 1 && cluster->node[1].voided == 1);
        cluster->fabric->hangs = false;
        replace(3, 1);
        step_of(ALL, 1);
        assert_int_equal(cluster->fabric->n_comms, 2);
}

/* ---- operations outside steps ---- */

#define PART 128u /* bytes that each member gives, or gets */
#define N_PART (PART / 4)

static double given(uint32_t rank, uint64_t i) {
        return (double)((rank + 1) * (1 + i % 7));
}

static void call_all(unsigned kind, uint64_t inputs) {
        unsigned before[MOST_NODES];

        for (uint32_t n = 0; n < cluster->n; n++)
                before[n] = cluster->node[n].operations + job_on(n)->n_local;
        for (uint32_t rank = 4; rank-- > 0;) {
                for (uint64_t i = 0; i < inputs; i++)
                        put(cluster->dtype, cluster->trainer[rank].staging, i, given(rank, i));
                memset(cluster->trainer[rank].staging + STAGING / 2, 0xff, STAGING / 2);
                assert_int_equal(call(rank, kind, PART), 0);
        }
        for (uint32_t n = 0; n < cluster->n; n++)
                until(cluster->node[n].operations == before[n]);
}

static double got(uint32_t rank, uint64_t i) {
        return get(cluster->dtype, cluster->trainer[rank].staging + STAGING / 2, i);
}

static double sum_of(uint64_t i) {
        double sum = 0;

        for (uint32_t rank = 0; rank < 4; rank++)
                sum += given(rank, i);
        return cluster->reduce == WIRE__REDUCE__AVG ? sum / 4 : sum;
}

FORMED_TEST(operations_go_between_nodes, ONE_AVG, TWO_AVG, THREE_SUM) {
        stage_all(4);
        call_all(WIRE__OPERATION_KIND__BROADCAST, N_PART);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint64_t i = 0; i < N_PART && rank != 2; i++)
                        assert_true(got(rank, i) == given(2, i));
        call_all(WIRE__OPERATION_KIND__ALLREDUCE, N_PART);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint64_t i = 0; i < N_PART; i++)
                        assert_true(got(rank, i) == sum_of(i));
        call_all(WIRE__OPERATION_KIND__ALLGATHER, N_PART);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint64_t i = 0; i < 4 * N_PART; i++)
                        assert_true(got(rank, i) == given((uint32_t)(i / N_PART), i % N_PART));
        call_all(WIRE__OPERATION_KIND__REDUCE_SCATTER, 4 * N_PART);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint64_t i = 0; i < N_PART; i++)
                        assert_true(got(rank, i) == sum_of(rank * N_PART + i));
        call_all(WIRE__OPERATION_KIND__BARRIER, 0);
        step_of(ALL, 1);
}

FORMED_TEST(calls_that_differ_are_refused_everywhere, TWO_AVG) {
        stage_all(4);
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__BROADCAST, rank < 2 ? PART : 2 * PART), 0);
        until(cluster->node[0].refused == 2 && cluster->node[1].refused == 2);
        assert_true(has_said(0, "members of another node call something else than the "
                                "broadcast of 128 bytes from rank 2"));
        assert_int_equal(cluster->node[0].operations, 0);
        call_all(WIRE__OPERATION_KIND__ALLREDUCE, N_PART); /* the next one is the same for all */
        for (uint64_t i = 0; i < N_PART; i++)
                assert_true(got(3, i) == sum_of(i));
}

FORMED_TEST(calls_that_differ_on_one_node_are_refused_on_the_others, TWO_AVG) {
        stage_all(4);
        for (uint32_t rank = 0; rank < 4; rank++)
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__BROADCAST, rank == 0 ? 2 * PART : PART),
                                 rank == 1 ? WIRE__CODE__OPERATION_MISMATCH : 0);
        until(cluster->node[1].refused == 2);
        call_all(WIRE__OPERATION_KIND__BARRIER, 0);
}

FORMED_TEST(an_operation_at_a_loss_ends_everywhere_alike, TWO_AVG) {
        stage_all(4);
        for (unsigned moment = 0; moment < 14; moment++) {
                unsigned before[2] = { cluster->node[0].operations, cluster->node[1].operations };

                for (uint32_t rank = 0; rank < 4; rank++)
                        assert_int_equal(call(rank, WIRE__OPERATION_KIND__ALLGATHER, PART), 0);
                for (unsigned i = 0; i < moment; i++)
                        pass();
                lose(2);
                settle();
                /* Rank 3 of the second node hears what those of the first one hear. */
                assert_int_equal((cluster->node[0].operations - before[0]) / 2 > 0,
                                 cluster->node[1].operations - before[1] > 0);
                replace(2, 1);
                stage(2);
        }
        call_all(WIRE__OPERATION_KIND__ALLREDUCE, N_PART);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

/* ---- a node without members ---- */

/* The second node's only member is lost, and no member takes its place in time: ranks 0, 1 and 2 are left. */
static void empty_a_node(void) {
        form_four();
        step_of(ALL, 1);
        stage_all(4);
        lose(2);
        until(all_entered(2));
        assert_int_equal(job_on(1)->n_local, 0);
        assert_int_equal(job_on(1)->world, 3);
}

NODES_TEST(a_node_without_members_gives_what_changes_nothing, THREE_FOR_TWO, THREE_MIN_FOR_TWO) {
        empty_a_node();
        for (uint64_t step = 2; step <= 4; step++)
                step_of(0x7, step);
        assert_int_equal(plan_of(1)->step, 4);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

NODES_TEST(operations_pass_a_node_without_members, THREE_FOR_TWO, THREE_MIN_FOR_TWO) {
        unsigned before;

        empty_a_node();
        before = cluster->node[0].operations;
        for (uint32_t rank = 0; rank < 3; rank++) {
                for (uint64_t i = 0; i < N_PART; i++)
                        put(cluster->dtype, cluster->trainer[rank].staging, i, given(rank, i));
                assert_int_equal(call(rank, WIRE__OPERATION_KIND__ALLREDUCE, PART), 0);
        }
        until(cluster->node[0].operations == before + 2 && cluster->node[2].operations > 0);
        for (uint64_t i = 0; i < N_PART; i++)
                assert_true(got(2, i) == (cluster->reduce == WIRE__REDUCE__MIN
                                                  ? given(0, i)
                                                  : given(0, i) + given(1, i) + given(2, i)));
        step_of(0x7, 2);
}

NODES_TEST(a_node_that_stays_empty_is_left_out, THREE_FOR_TWO) {
        empty_a_node();
        step_of(0x7, 2);
        until(cluster->fabric->n_comms == 2 && job_on(1) == NULL);
        until(job_on(0)->generation == 3 && job_on(2)->generation == 3);
        step_of(0x7, 3);
        assert_int_equal(cluster->fabric->comm[1].n_peers, 2);
}

NODES_TEST(a_member_comes_to_an_empty_node, THREE_FOR_TWO) {
        empty_a_node();
        step_of(0x7, 2);
        join(1, 3, 4);
        until(all_entered(3));
        bring(3);
        cluster->trainer[3].step[0] = 3;
        step_of(ALL, 3);
        assert_int_equal(cluster->fabric->n_comms, 1);
}

/* The plan of the later node goes on at the others' step, and all members hear that one of them lacks the
 * state. */
NODES_TEST(a_node_that_comes_later_counts_on_with_the_others, THREE_FOR_TWO) {
        form_three();
        for (uint32_t rank = 0; rank < 3; rank++)
                bring(rank);
        settle();
        step_of(0x7, 1);
        step_of(0x7, 2);
        assert_false(cluster->trainer[0].history);
        join(2, 3, 4);
        until(cluster->trainer[3].member != NULL);
        assert_true(cluster->trainer[3].history);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_true(cluster->trainer[rank].behind);
        bring(3);
        settle();
        assert_int_equal(plan_of(2)->step, 2);
        give_all(4);
        until(cluster->trainer[0].step[0] == 4 && cluster->trainer[3].step[0] == 4);
        assert_sums(ALL, 3);
}

/* A later plan on a track that has been used counts from the beginning, on every node. */
NODES_TEST(a_track_that_is_used_again_begins_anew, THREE_FOR_TWO) {
        form_three();
        for (uint32_t rank = 0; rank < 3; rank++)
                bring_plan(rank, 1, "q");
        settle();
        for (uint32_t rank = 0; rank < 3; rank++)
                bring(rank);
        settle();
        step_of(0x7, 1);
        step_of(0x7, 2);
        for (uint32_t rank = 0; rank < 3; rank++)
                assert_int_equal(plan_drop(cluster->trainer[rank].member, 0, 12, &cluster->refusal), 0);
        settle();
        for (uint32_t rank = 0; rank < 3; rank++)
                bring_plan(rank, 2, "r");
        settle();
        assert_int_equal(plan_find(job_on(0), 2)->track, TRACK_STEP + 1);
        join(2, 3, 4);
        until(cluster->trainer[3].member != NULL);
        bring_plan(3, 1, "q");
        bring_plan(3, 2, "r");
        settle();
        assert_true(plan_find(job_on(2), 2)->agreed);
        assert_int_equal(plan_find(job_on(2), 2)->track, TRACK_STEP + 1);
        assert_int_equal(plan_find(job_on(2), 2)->step, 0);
        assert_true(job_on(2)->machine.node.track[TRACK_STEP + 1].committed == 2);
}

NODES_TEST(a_loss_beside_an_empty_node, THREE_FOR_TWO) {
        empty_a_node();
        give(0);
        give(1);
        settle();
        lose(1);
        until(job_on(0)->generation == 3 &&
              job_on(2)->generation == 3); /* grace was over for the empty one, too */
        until(job_on(1) == NULL);
        assert_int_equal(cluster->node[0].voided, 1);
        assert_int_equal(cluster->node[2].voided, 0); /* it had not begun */
        step_of(0x3, 2);
}
