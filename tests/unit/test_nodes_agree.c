/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that nodes of a job do not agree on: what is told of it, to whom, and what comes after. */
#include "nodes_fixture.h"

#define PARAMS 40u
#define MANY 20000u

/* A plan of small parameters, `per` of them in a bucket, as some member has it. */
struct version {
        uint32_t params, per;
        uint32_t other; /* the parameter that is not like those of the rest, in one of these: */
        const char *name;
        unsigned dtype;
        uint64_t shape;
        unsigned reduce;
        uint64_t timeout;
        bool voids;
};

#define LIKE_ALL .params = PARAMS, .per = 1, .other = UINT32_MAX
static const struct version usual = { LIKE_ALL };

static struct offer_param param_of(const struct version *v, uint32_t index, char name[16], uint64_t *shape) {
        bool other = index == v->other;

        snprintf(name, 16, "%s%u", other && v->name != NULL ? v->name : "w", index);
        *shape = other && v->shape != 0 ? v->shape : 3;
        return (struct offer_param){ .name = name,
                                     .dtype = other && v->dtype != 0 ? v->dtype : WIRE__DTYPE__F32,
                                     .shape = shape,
                                     .dims = 1,
                                     .bucket = index / v->per };
}

static uint64_t place_bytes(const struct version *v) {
        return (v->per * 64 + 4095) / 4096 * 4096;
}

static struct offer_bucket bucket_of(const struct version *v, uint32_t index) {
        struct offer_bucket bucket = { .offset = index * place_bytes(v) };
        char name[16];
        uint64_t shape;

        for (uint32_t i = index * v->per; i < (index + 1) * v->per && i < v->params; i++) {
                unsigned dtype = bucket.dtype = param_of(v, i, name, &shape).dtype;

                bucket.bytes = (bucket.bytes + 63) / 64 * 64 + shape * dtype_size(dtype);
                bucket.payload += shape * dtype_size(dtype);
        }
        return bucket;
}

static void offer(uint32_t rank, uint32_t plan, const struct version *v) {
        struct member *member = cluster->trainer[rank].member;
        struct offer begin = { .generation = member->job->generation,
                               .plan = plan,
                               .params = v->params,
                               .buckets = (v->params + v->per - 1) / v->per,
                               .control_bytes = diagnosis_bytes(v->params),
                               .reduce = v->reduce != 0 ? v->reduce : WIRE__REDUCE__SUM,
                               .timeout = v->timeout,
                               .void_on_loss = v->voids };
        char name[16];
        uint64_t shape;

        begin.arena_bytes = begin.buckets * place_bytes(v);
        assert_int_equal(plan_begin(member, &begin, &cluster->refusal), 0);
        for (uint32_t i = 0; i < v->params; i++) {
                struct offer_param param = param_of(v, i, name, &shape);

                assert_int_equal(plan_params(member, plan, &param, 1, &cluster->refusal), 0);
        }
        for (uint32_t b = 0; b < begin.buckets; b++) {
                struct offer_bucket bucket = bucket_of(v, b);

                assert_int_equal(plan_buckets(member, plan, &bucket, 1, &cluster->refusal), 0);
        }
}

static void bring_version(uint32_t rank, uint32_t plan, const struct version *v) {
        offer(rank, plan, v);
        assert_int_equal(plan_commit(cluster->trainer[rank].member, plan, 8, &cluster->refusal), 0);
        assert_int_equal(plan_mapped(cluster->trainer[rank].member, plan, 9, &cluster->refusal), 0);
}

/* Ranks 0 and 1 on the first node, each further one on the next. */
static uint32_t node_of_rank(uint32_t rank) {
        return rank < 2 ? 0 : rank - 1;
}

static uint32_t world(void) {
        return cluster->n + 1;
}

static int setup_spread(void **state) {
        setup_nodes(state);
        for (uint32_t rank = 0; rank < world(); rank++)
                join(node_of_rank(rank), rank, world());
        until(cluster->trainer[0].member != NULL && cluster->trainer[world() - 1].member != NULL);
        settle();
        return 0;
}

#define TEST(name, ...) NODES_TEST_BETWEEN(setup_spread, teardown, name, __VA_ARGS__)

static bool refused_once(uint32_t from, uint32_t to) {
        for (uint32_t rank = from; rank < to; rank++) {
                const struct station *station = &cluster->node[node_of_rank(rank)];

                if (station->refused != (station == &cluster->node[0] ? 2u : 1u))
                        return false;
        }
        return true;
}

/* "%d" stands for the pid, which all members here have. */
static const char *with_pids(const char *text) {
        static char whole[1024];
        int pid = (int)getpid();

        snprintf(whole, sizeof(whole), text, pid, pid, pid);
        return whole;
}

static void assert_told(uint32_t node, uint32_t code, const char *text) {
        assert_int_equal(cluster->node[node].code, code);
        assert_string_equal(cluster->node[node].text, with_pids(text));
}

static void forget_told(void) {
        for (uint32_t n = 0; n < cluster->n; n++) {
                cluster->node[n].refused = cluster->node[n].code = 0;
                cluster->node[n].text[0] = '\0';
        }
}

/* The next plan is agreed on, so nothing is left of the one before. */
static void agree_on(uint32_t plan, const struct version *v) {
        forget_told();
        for (uint32_t rank = 0; rank < world(); rank++)
                bring_version(rank, plan, v);
        settle();
        for (uint32_t n = 0; n < cluster->n; n++) {
                assert_true(plan_find(job_on(n), plan)->agreed);
                assert_int_equal(cluster->node[n].refused, 0);
                for (uint32_t before = 0; before < plan; before++)
                        assert_null(plan_find(job_on(n), before));
        }
        assert_int_equal(plan_find(job_on(0), plan)->track, TRACK_STEP);
}

/* ---- differences ---- */

static const struct {
        struct version last; /* of the last node */
        const char *text, *parameter;
} differences[] = {
        { { .params = PARAMS, .per = 1, .other = 17, .name = "v" },
          "plan 0 of job 'j': parameter 17 is \"v17\" on rank 2 (pid %d) but \"w17\" on rank 0 (pid %d): "
          "register the same parameters in the same order",
          "v17" },
        { { .params = PARAMS, .per = 1, .other = 0, .shape = 4 },
          "plan 0 of job 'j': parameter 0 \"w0\" has shape [4] on rank 2 (pid %d) but [3] on rank 0 (pid %d)",
          "w0" },
        { { .params = PARAMS, .per = 1, .other = 39, .dtype = WIRE__DTYPE__F64 },
          "plan 0 of job 'j': parameter 39 \"w39\" is f64 on rank 2 (pid %d) but f32 on rank 0 (pid %d)",
          "w39" },
        { { .params = PARAMS + 1, .per = 1, .other = UINT32_MAX },
          "plan 0 of job 'j': rank 2 (pid %d) has 41 parameters, rank 0 (pid %d) has 40; the first one too "
          "many is parameter 40 \"w40\"",
          "w40" },
        { { .params = PARAMS - 3, .per = 1, .other = UINT32_MAX },
          "plan 0 of job 'j': rank 2 (pid %d) has 37 parameters, rank 0 (pid %d) has 40; the first one too "
          "many is parameter 37 \"w37\"",
          "w37" },
        { { .params = PARAMS, .per = 2, .other = UINT32_MAX },
          "plan 0 of job 'j': parameter 1 \"w1\" is in bucket 0 on rank 2 (pid %d) but in 1 on rank 0 (pid "
          "%d): use the same bucket sizes",
          "w1" },
        { { LIKE_ALL, .reduce = WIRE__REDUCE__MAX },
          "plan 0 of job 'j': rank 2 (pid %d) wants the max, rank 0 (pid %d) the sum",
          "" },
        { { LIKE_ALL, .voids = true },
          "plan 0 of job 'j': rank 2 (pid %d) has made it with void_on_loss, rank 0 (pid %d) without",
          "" },
};

TEST(a_difference_is_told_to_all_by_name, TWO_AVG) {
        size_t n = sizeof(differences) / sizeof(differences[0]);

        for (size_t i = 0; i < n; i++) {
                if (i > 0) {
                        teardown(NULL);
                        setup_spread(&(void *){ (void *)(uintptr_t)TWO_AVG });
                }
                bring_version(0, 0, &usual);
                bring_version(1, 0, &usual);
                bring_version(2, 0, &differences[i].last);
                until(refused_once(0, 3));
                for (uint32_t node = 0; node < 2; node++) {
                        assert_told(node, WIRE__CODE__PLAN_MISMATCH, differences[i].text);
                        assert_string_equal(cluster->node[node].parameter, differences[i].parameter);
                        assert_int_equal(cluster->node[node].culprit, 2);
                }
                agree_on(1, &usual);
        }
}

/* Orders and reports to and from the node. */
static unsigned letters_of(uint32_t node) {
        const unsigned *n = cluster->node[node].n_letters;

        return n[POST_ORDER] + n[POST_REPORT];
}

/* However many parameters there are, a few questions find the one that differs. */
TEST(a_difference_is_found_in_a_few_messages, TWO_AVG) {
        struct version many = { .params = MANY, .per = 100, .other = UINT32_MAX }, last = many;
        unsigned before;

        last.other = 12345;
        last.name = "v";
        for (uint32_t rank = 0; rank < 2; rank++)
                bring_version(rank, 0, &many);
        settle();
        before = letters_of(0);
        bring_version(2, 0, &last);
        until(refused_once(0, 3));
        assert_told(1, WIRE__CODE__PLAN_MISMATCH,
                    "plan 0 of job 'j': parameter 12345 is \"v12345\" on rank 2 (pid %d) but \"w12345\" on "
                    "rank 0 (pid %d): register the same parameters in the same order");
        assert_in_range(letters_of(0) - before, 1, 3 * 17 + 4); /* and reports that the
                                                                        node has settled */
}

/* A node that comes later than the difference hears of it, too. */
TEST(who_brings_it_later_hears_the_same, THREE_AVG) {
        struct version other = usual;

        other.other = 3;
        other.shape = 9;
        bring_version(0, 0, &usual);
        bring_version(1, 0, &usual);
        bring_version(3, 0, &other);
        until(refused_once(0, 2) && refused_once(3, 4));
        assert_int_equal(cluster->node[1].refused, 0);
        bring_version(2, 0, &usual);
        until(refused_once(0, 4));
        for (uint32_t node = 0; node < 3; node++)
                assert_told(node, WIRE__CODE__PLAN_MISMATCH,
                            "plan 0 of job 'j': parameter 3 \"w3\" has shape [9] on rank 3 (pid %d) but [3] "
                            "on rank 0 (pid %d)");
        agree_on(1, &usual);
}

/* Members of one node differ, and those of the others hear it. */
TEST(what_fails_on_one_node_fails_on_all, TWO_AVG) {
        struct version other = usual;

        other.other = 5;
        other.name = "v";
        bring_version(2, 0, &usual);
        bring_version(0, 0, &usual);
        offer(1, 0, &other);
        assert_int_equal(plan_commit(cluster->trainer[1].member, 0, 8, &cluster->refusal),
                         WIRE__CODE__PLAN_MISMATCH);
        until(cluster->node[0].refused == 1 && cluster->node[1].refused == 1);
        for (uint32_t node = 0; node < 2; node++)
                assert_told(
                        node, WIRE__CODE__PLAN_MISMATCH,
                        "plan 0 of job 'j': parameter 5 is \"v5\" on rank 1 (pid %d) but \"w5\" on rank 0 "
                        "(pid %d): register the same parameters in the same order");
        assert_string_equal(cluster->node[1].parameter, "v5");
        agree_on(1, &usual);
}

TEST(what_a_member_gives_up_nobody_waits_for, TWO_AVG) {
        for (uint32_t rank = 0; rank < 2; rank++)
                bring_version(rank, 0, &usual);
        settle();
        assert_int_equal(plan_drop(cluster->trainer[1].member, 0, 12, &cluster->refusal), 0);
        settle();
        bring_version(2, 0, &usual);
        until(cluster->node[1].refused == 1);
        assert_told(1, WIRE__CODE__PLAN_MISMATCH,
                    "plan 0 of job 'j': rank 1 (pid %d) cannot bring it: it gave the plan up");
        agree_on(1, &usual);
}

/* ---- time ---- */

/* As the jobs' own tick does. */
static void let_pass(uint64_t time) {
        test_clock += time;
        for (uint32_t n = 0; n < cluster->n; n++) {
                if (plan_of(n) != NULL)
                        plan_expire(plan_of(n), clock_now());
                jobs_advance(cluster->node[n].jobs);
        }
}

TEST(members_that_are_late_are_named_on_all_nodes, THREE_AVG) {
        struct version timed = usual;

        timed.timeout = 5 * USEC_PER_SEC;
        bring_version(0, 0, &timed);
        bring_version(2, 0, &usual); /* it would wait for ever */
        settle();
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
        let_pass(4 * USEC_PER_SEC);
        settle();
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
        let_pass(2 * USEC_PER_SEC);
        until(cluster->node[0].refused == 1 && cluster->node[1].refused == 1);
        for (uint32_t node = 0; node < 2; node++)
                assert_told(
                        node, WIRE__CODE__TIMEOUT,
                        "plan 0 of job 'j' was not agreed within 5.0 s: rank 1 (pid %d), rank 3 (pid %d) did "
                        "not bring it");
        offer(3, 0, &usual);
        assert_int_equal(plan_commit(cluster->trainer[3].member, 0, 8, &cluster->refusal), 0);
        assert_int_equal(plan_mapped(cluster->trainer[3].member, 0, 9, &cluster->refusal), 0);
        until(cluster->node[2].refused == 1);
        assert_string_equal(cluster->node[2].text, cluster->node[0].text);
        offer(1, 0, &usual);
        assert_int_equal(plan_commit(cluster->trainer[1].member, 0, 8, &cluster->refusal),
                         WIRE__CODE__TIMEOUT);
        agree_on(1, &usual);
}

/* A plan that comes just in time is agreed on, whatever has been asked meanwhile. */
TEST(what_comes_meanwhile_counts, TWO_AVG) {
        struct version timed = usual;

        timed.timeout = 5 * USEC_PER_SEC;
        for (uint32_t rank = 0; rank < 2; rank++)
                bring_version(rank, 0, &timed);
        settle();
        let_pass(6 * USEC_PER_SEC);  /* the coordinator is told, */
        bring_version(2, 0, &timed); /* and before the other node has said whom it waits for, it does not */
        settle();
        assert_true(plan_of(0)->agreed && plan_of(1)->agreed);
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
}

/* ---- a plan that others go on with ---- */

NODES_TEST(who_comes_later_and_differs_is_refused_alone, THREE_SUM) {
        form_three();
        for (uint32_t rank = 0; rank < 3; rank++)
                bring(rank);
        settle();
        give_all(3);
        until(cluster->node[0].committed == 1 && cluster->node[1].committed == 1);
        join(2, 3, 4);
        until(cluster->trainer[3].member != NULL);
        bring_plan(3, 0, "q");
        until(cluster->node[2].refused == 1);
        assert_told(
                2, WIRE__CODE__PLAN_MISMATCH,
                "plan 0 of job 'j': parameter 0 is \"q0\" on rank 3 (pid %d) but \"p0\" on rank 0 (pid %d): "
                "register the same parameters in the same order");
        assert_int_equal(cluster->node[0].refused + cluster->node[1].refused, 0);
        munmap(cluster->trainer[3].arena[0], cluster->trainer[3].arena_bytes[0]);
        bring(3); /* as it should have been */
        settle();
        assert_true(plan_of(2)->agreed);
        give_all(4);
        until(cluster->node[0].committed == 2 && cluster->node[2].committed == 1);
}
