/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters without a gradient in a job over several nodes: what nobody has used is known to everybody. */
#include "nodes_fixture.h"

#define ALL 0xfu
#define PARTS MOST_PARTS
#define NO_MAP 0xffu /* the member says nothing of absent ones */

typedef uint8_t (*absent_fn)(uint32_t rank, uint32_t bucket);

static void form(void) {
        cluster->parts = PARTS;
        form_four();
}

static uint64_t part_bytes(uint32_t bucket) {
        return bucket_bytes(bucket) / PARTS;
}

/* Zeros where the map says absent. 0, or the code of a refusal. */
static int give_with(uint32_t rank, uint32_t bucket, uint8_t absent) {
        struct trainer *trainer = &cluster->trainer[rank];
        unsigned char *at = trainer->arena[0] + bucket_offset(bucket);
        struct ready ready = { .generation = trainer->member->job->generation,
                               .step = trainer->step[0],
                               .bucket = bucket,
                               .has_absent = absent != NO_MAP,
                               .absent = &absent,
                               .absent_bytes = 1 };

        for (uint64_t i = 0; i < PERIOD; i++)
                put(cluster->dtype, at, i, value_of(rank, 0, trainer->step[0], bucket, i));
        repeat(at, PERIOD * dtype_size(cluster->dtype), bucket_bytes(bucket));
        for (uint32_t part = 0; part < PARTS; part++)
                if (absent != NO_MAP && (absent >> part & 1) != 0)
                        memset(at + part * part_bytes(bucket), 0, part_bytes(bucket));
        return step_ready(trainer->member, &ready, &cluster->refusal);
}

static void assert_part_right(unsigned from, uint64_t step, absent_fn absent, uint32_t b, uint32_t part) {
        static unsigned char whole[LARGE * 4];
        uint64_t first = part * part_bytes(b) / dtype_size(cluster->dtype);

        for (uint64_t i = 0; i < PERIOD; i++) {
                double sum = 0;

                for (uint32_t rank = 0; rank < 4; rank++)
                        if ((from >> rank & 1) != 0 &&
                            (absent(rank, b) == NO_MAP || (absent(rank, b) >> part & 1) == 0))
                                sum += value_of(rank, 0, step, b, first + i);
                if (cluster->reduce == WIRE__REDUCE__AVG)
                        sum /= job_on(0)->world;
                put(cluster->dtype, whole, i, sum);
        }
        repeat(whole, PERIOD * dtype_size(cluster->dtype), part_bytes(b));
        for (uint32_t rank = 0; rank < 4; rank++)
                if ((from >> rank & 1) != 0)
                        assert_memory_equal(cluster->trainer[rank].arena[0] + bucket_offset(b) +
                                                    part * part_bytes(b),
                                            whole, part_bytes(b));
}

static void assert_right(unsigned from, uint64_t step, absent_fn absent) {
        for (uint32_t b = 0; b < BUCKETS; b++) {
                uint8_t unused = (1u << PARTS) - 1;

                for (uint32_t rank = 0; rank < 4; rank++)
                        if ((from >> rank & 1) != 0)
                                unused &= absent(rank, b) == NO_MAP ? 0 : absent(rank, b);
                for (uint32_t n = 0; n < cluster->n; n++)
                        assert_int_equal(cluster->node[n].unused[b], job_on(n)->n_local > 0 ? unused : 0);
                for (uint32_t part = 0; part < PARTS; part++)
                        assert_part_right(from, step, absent, b, part);
        }
}

static void give_step(unsigned from, absent_fn absent) {
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t b = 0; b < BUCKETS && (from >> rank & 1) != 0; b++)
                        assert_int_equal(give_with(rank, (b + rank) % BUCKETS,
                                                   absent(rank, (b + rank) % BUCKETS)),
                                         0);
}

static void step_with(unsigned from, absent_fn absent) {
        uint64_t step = cluster->trainer[0].step[0];

        give_step(from, absent);
        until(cluster->trainer[0].step[0] == step + 1);
        settle();
        assert_right(from, step, absent);
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

/* On the first node only; the others use what it does not. */
static uint8_t on_one_node(uint32_t rank, uint32_t bucket) {
        return rank < 2 ? 1 : NO_MAP;
}

/* The same one everywhere. */
static uint8_t one_everywhere(uint32_t rank, uint32_t bucket) {
        return 1u << bucket % PARTS;
}

/* Each has its own, and one is absent on all. */
static uint8_t different(uint32_t rank, uint32_t bucket) {
        return (uint8_t)(1u << rank % PARTS | (bucket % 2 == 0 ? 1u << 2 : 0));
}

/* One bucket is used by nobody at all, one only by the last member. */
static uint8_t whole_buckets(uint32_t rank, uint32_t bucket) {
        return bucket == 1 || (bucket == 2 && rank < 3) ? (1u << PARTS) - 1 : NO_MAP;
}

NODES_TEST(what_nobody_uses_is_known_to_all, ONE_AVG, TWO_AVG, THREE_AVG, THREE_SUM) {
        static const absent_fn steps[] = { none_said, on_one_node,   one_everywhere, none,
                                           different, whole_buckets, everything,     none_said };

        form();
        for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
                step_with(ALL, steps[i]);
        for (uint32_t n = 0; n < cluster->n && cluster->n > 1; n++)
                assert_int_equal(cluster->fabric->node[n].n_payloads + cluster->fabric->node[n].n_votes,
                                 (pieces_of(n, BUCKETS) + 2) * sizeof(steps) / sizeof(steps[0]));
}

/* … and does not count as reduced, on any node. */
NODES_TEST(what_nobody_uses_does_not_count, ONE_AVG, TWO_AVG) {
        uint64_t whole = 0, before;

        form();
        for (uint32_t b = 0; b < BUCKETS; b++)
                whole += bucket_bytes(b);
        step_with(ALL, different);
        before = job_on(0)->bytes_reduced;
        step_with(ALL, whole_buckets);
        for (uint32_t n = 0; n < cluster->n; n++)
                assert_int_equal(job_on(n)->bytes_reduced - before, whole - bucket_bytes(1));
}

/* It has used nothing. The member of the last node has rank 2 then. */
NODES_TEST(a_node_without_members_uses_nothing, THREE_FOR_TWO) {
        form();
        step_with(ALL, different);
        lose(2);
        until(job_on(0)->generation == 2 && job_on(1)->generation == 2 && job_on(2)->generation == 2);
        assert_int_equal(job_on(1)->n_local, 0);
        step_with(0x7, one_everywhere);
        step_with(0x7, different);
        step_with(0x7, whole_buckets);
        step_with(0x7, none_said);
}

/* What was absent in a void step is forgotten with it. */
NODES_TEST(a_void_step_leaves_nothing, TWO_AVG, THREE_SUM) {
        form();
        step_with(ALL, none_said);
        for (uint32_t rank = 0; rank < 4; rank++)
                for (uint32_t b = 0; b < BUCKETS - (rank == 3); b++)
                        assert_int_equal(give_with(rank, b, everything(rank, b)), 0);
        settle();
        assert_int_equal(cluster->node[0].unused[0], everything(0, 0));
        lose(2);
        until(cluster->node[0].voided == 1 && cluster->node[1].voided == 1);
        replace(2, 1);
        step_with(ALL, on_one_node);
        step_with(ALL, one_everywhere);
}

/* Whenever somebody is lost, nobody is told that a parameter is unused in a step that it keeps. */
NODES_TEST(a_loss_at_any_moment_leaves_the_map_right, TWO_AVG, THREE_SUM) {
        unsigned committed = 0, voided = 0;

        form();
        for (unsigned moment = 0; moment < MOMENTS(20); moment++) {
                uint64_t step = cluster->trainer[0].step[0];

                give_step(ALL, different);
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
NODES_TEST(a_minimum_has_no_absent_parameters, THREE_MIN) {
        form();
        assert_int_equal(give_with(0, 0, 1), WIRE__CODE__INVALID);
        assert_non_null(strstr(cluster->refusal.text, "to which an absent parameter contributes nothing"));
}
