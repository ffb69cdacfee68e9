/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters without a gradient in a job over several nodes: all members learn which parameters none of them
 * has used. */
#include "nodes_fixture.h"

#define PARTS MOST_PARTS

static int setup_parts(void **state) {
        setup_nodes(state);
        cluster->parts = PARTS;
        form_four();
        return 0;
}

#define TEST(name, ...) NODES_TEST_BETWEEN(setup_parts, teardown, name, __VA_ARGS__)

/* Takes the next step; from now on `absent` says which parameters are absent. */
static void step_with(unsigned from, absent_fn absent) {
        uint64_t step = cluster->trainer[0].step[0];

        cluster->absent = absent;
        for (uint32_t rank = 0; rank < 4; rank++)
                if (from >> rank & 1)
                        give(rank);
        until(cluster->trainer[0].step[0] == step + 1);
        settle();
        assert_sums(from, step);
}

static uint8_t none_said(uint32_t rank, uint32_t bucket) {
        return NO_MAP;
}

static uint8_t none(uint32_t rank, uint32_t bucket) {
        return 0;
}

static uint8_t everything(uint32_t rank, uint32_t bucket) {
        return (1u << PARTS) - 1;
}

/* Parameters are absent on the first node only; the other nodes use them. */
static uint8_t on_one_node(uint32_t rank, uint32_t bucket) {
        return rank < 2 ? 1 : NO_MAP;
}

/* The same one everywhere. */
static uint8_t one_everywhere(uint32_t rank, uint32_t bucket) {
        return 1u << bucket % PARTS;
}

/* Each rank has an absent parameter of its own, and one parameter is absent on all ranks. */
static uint8_t different(uint32_t rank, uint32_t bucket) {
        return (uint8_t)(1u << rank % PARTS | (bucket % 2 == 0 ? 1u << 2 : 0));
}

/* No member uses one bucket, and only the last member uses another one. */
static uint8_t whole_buckets(uint32_t rank, uint32_t bucket) {
        return bucket == 1 || (bucket == 2 && rank < 3) ? (1u << PARTS) - 1 : NO_MAP;
}

TEST(what_nobody_uses_is_known_to_all, ONE_AVG, TWO_AVG, THREE_AVG, THREE_SUM) {
        static const absent_fn steps[] = { none_said, on_one_node,   one_everywhere, none,
                                           different, whole_buckets, everything,     none_said };

        for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
                step_with(ALL, steps[i]);
        for (uint32_t n = 0; n < cluster->n && cluster->n > 1; n++)
                assert_int_equal(cluster->fabric->node[n].n_payloads + cluster->fabric->node[n].n_votes,
                                 (pieces_of(n, BUCKETS) + 2) * sizeof(steps) / sizeof(steps[0]));
}

/* A bucket that no member has used does not count as reduced, on any node. */
TEST(what_nobody_uses_does_not_count, ONE_AVG, TWO_AVG) {
        uint64_t whole = 0, before;

        for (uint32_t b = 0; b < BUCKETS; b++)
                whole += bucket_bytes(b);
        step_with(ALL, different);
        before = job_on(0)->bytes_reduced;
        step_with(ALL, whole_buckets);
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_int_equal(job_on(n)->bytes_reduced - before, whole - bucket_bytes(1));
}

/* After the loss, the member of the last node has rank 2. */
TEST(a_node_without_members_uses_nothing, THREE_FOR_TWO) {
        step_with(ALL, different);
        lose(2);
        until(job_on(0)->generation == 2 && job_on(1)->generation == 2 && job_on(2)->generation == 2);
        assert_int_equal(job_on(1)->n_local, 0);
        step_with(0x7, one_everywhere);
        step_with(0x7, different);
        step_with(0x7, whole_buckets);
        step_with(0x7, none_said);
}

/* A loss at any moment does not change the parameters that are reported as unused in a step that members
 * keep. Those that were absent in a void step are forgotten with it. */
TEST(a_loss_at_any_moment_leaves_the_map_right, TWO_AVG, THREE_SUM) {
        unsigned committed = 0, voided = 0;

        for (unsigned moment = 0; moment < MOMENTS(20); moment++) {
                uint64_t step = cluster->trainer[0].step[0];

                cluster->absent = different;
                give_all(4);
                for (unsigned i = 0; i < moment; i++)
                        pass();
                lose(2);
                settle();
                if (cluster->trainer[0].step[0] == step + 1) {
                        committed++;
                        for (uint32_t n = 0; n < cluster->n; n++)
                                for (uint32_t b = 0; b < BUCKETS && job_on(n)->n_local > 0; b++)
                                        assert_int_equal(cluster->node[n].unused[b], b % 2 == 0 ? 4 : 0);
                } else {
                        voided++;
                }
                replace(2, 1);
                step_with(ALL, one_everywhere);
        }
        assert_true(committed > 0 && voided > 0);
}

/* A minimum has nothing to say of what is not there. */
TEST(a_minimum_has_no_absent_parameters, THREE_MIN) {
        cluster->absent = everything;
        assert_int_equal(ready_of(0, 0, 0, 0), WIRE__CODE__INVALID);
        assert_non_null(strstr(cluster->refusal.text, "to which an absent parameter contributes nothing"));
}
