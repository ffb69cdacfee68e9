/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that members bring, and the eviction of members that give pages back, over a backend that reduces
 * nothing. */
#include "descriptors.h"
#include "fixed_fixture.h"
#include "tests.h"

#define PAGE 4096u

/* A job of two members. */
static int setup_pair(void **state) {
        struct fixture *f;

        setup(state);
        f = *state;
        set_limit(f, ACCOUNT_ARENAS, 12);
        form(f, 2);
        return 0;
}

/* Ends the job, and checks that no memory is left. */
static int teardown_pair(void **state) {
        struct fixture *f = *state;

        all_gone(f, WIRE__CAUSE__CLOSED);
        end_tasks(f);
        pass(f);
        assert_null(f->jobs->claimed);
        return teardown(state);
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_pair, teardown_pair)

/* Takes the fd. */
static int enlist(struct fixture *f, uint32_t rank, int fd, uint64_t offset, uint32_t *ret_handle) {
        int r = memory_register(f->member[rank], 14, &fd, 1, offset, 16 * PAGE - offset, &f->refusal);

        if (r != 0)
                close(fd);
        *ret_handle = f->number;
        return r;
}

/* One f32 parameter of a page in each of two buckets, at these offsets of the memory; handle 0: in the arena.
 */
static int describe_at(struct fixture *f, uint32_t rank, uint32_t ordinal, uint32_t handle, uint64_t first,
                       uint64_t second) {
        struct offer begin = offer_of(ordinal, 2);
        struct offer_param param[2] = { 0 };
        struct offer_bucket bucket[2] = { 0 };
        uint64_t shape = PAGE / 4;
        int r;

        begin.arena_bytes = handle != 0 ? 0 : 2 * PAGE;
        for (unsigned i = 0; i < 2; i++) {
                param[i].name = (i == 0 ? "a" : "b");
                param[i].dtype = bucket[i].dtype = WIRE__DTYPE__F32;
                param[i].dims = 1;
                param[i].shape = &shape;
                param[i].bucket = i;
                bucket[i].memory = handle;
                bucket[i].bytes = bucket[i].payload = PAGE;
        }
        bucket[0].offset = handle != 0 ? first : 0;
        bucket[1].offset = handle != 0 ? second : PAGE;
        r = plan_begin(f->member[rank], &begin, &f->refusal);
        if (r == 0)
                r = plan_params(f->member[rank], ordinal, param, 2, &f->refusal);
        if (r == 0)
                r = plan_buckets(f->member[rank], ordinal, bucket, 2, &f->refusal);
        return r == 0 ? plan_commit(f->member[rank], ordinal, 8, &f->refusal) : r;
}

static void agree_at(struct fixture *f, uint32_t handle) {
        assert_int_equal(describe_at(f, 0, 0, handle, 64, 8 * PAGE), 0);
        assert_int_equal(describe_at(f, 1, 0, 0, 0, 0), 0);
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(plan_mapped(f->member[rank], 0, 9, &f->refusal), 0);
        assert_heard("agreed 0;agreed 1;");
}

/* Bytes on the GPU are charged to an account of their own, and bytes on the host to the usual ones. */
TEST(memory_of_a_gpu_is_charged) {
        const uint64_t limits[ACCOUNT_SLOTS] = {
                10, 4, 12, 8 * PAGE, 100, 20 * PAGE, 8 * PAGE, [ACCOUNT_PLANS] = UINT64_C(64) << 20
        };
        uint32_t handle;

        f->fake.is_gpu = true;
        accounts_set_limits(f->accounts, limits);
        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), 0, &handle), 0);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_DEVICE), 18 * PAGE); /* three at once */
        assert_true(accounts_total(f->accounts, ACCOUNT_BYTES) < 8 * PAGE);
        assert_int_equal(enlist(f, 1, memfd_sealed(16 * PAGE), 0, &handle), WIRE__CODE__QUOTA);
        assert_non_null(strstr(f->refusal.text, "bytes of the GPU's memory"));
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 1);
        assert_int_equal(memory_unregister(f->member[0], 13, 1, &f->refusal), 0);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_DEVICE), 0);
}

TEST(memory_is_charged) {
        uint32_t handle[2];

        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), 0, &handle[0]), 0);
        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), PAGE, &handle[1]), 0);
        assert_int_equal(handle[1], 2);
        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), 100, &handle[1]), WIRE__CODE__INVALID);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 2);
        assert_true(accounts_total(f->accounts, ACCOUNT_BYTES) >= 31 * PAGE);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_FDS), 2);
        assert_int_equal(memory_unregister(f->member[1], 13, handle[0], &f->refusal), WIRE__CODE__INVALID);
        assert_int_equal(memory_unregister(f->member[0], 13, handle[0], &f->refusal), 0);
        assert_int_equal(memory_unregister(f->member[0], 13, handle[0], &f->refusal), WIRE__CODE__INVALID);
        assert_int_equal(accounts_total(f->accounts, ACCOUNT_ARENAS), 1);
        for (unsigned i = 0; i < 11; i++)
                assert_int_equal(enlist(f, 1, memfd_sealed(16 * PAGE), 0, &handle[1]), 0);
        assert_int_equal(enlist(f, 1, memfd_sealed(16 * PAGE), 0, &handle[1]), WIRE__CODE__QUOTA);
        assert_int_equal(f->fake.n_arenas, 12);
        member_gone(f->member[1], WIRE__CAUSE__CLOSED);
        pass(f);
        assert_int_equal(f->fake.n_arenas, 1);
}

/* Each member's buckets are reduced where that member has them. */
TEST(members_have_their_own_places) {
        const struct plan *plan;
        uint32_t handle;

        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), PAGE, &handle), 0);
        agree_at(f, handle);
        plan = plan_find(f->member[0]->job, 0);
        assert_int_equal(plan_range(plan, 0, 0).offset, 64);
        assert_int_equal(plan_range(plan, 0, 1).offset, 8 * PAGE);
        assert_ptr_not_equal(plan_range(plan, 0, 0).memory, plan->part[0].arena->memory);
        assert_int_equal(plan_range(plan, 1, 0).offset, 0);
        assert_int_equal(plan_range(plan, 1, 1).offset, PAGE);
        assert_ptr_equal(plan_range(plan, 1, 1).memory, plan->part[1].arena->memory);
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0);
        assert_int_equal(f->fake.submitted, 1);
        assert_int_equal(f->fake.task[0].input[0].offset, 8 * PAGE);
        assert_int_equal(f->fake.task[0].input[1].offset, PAGE);
        assert_int_equal(memory_unregister(f->member[0], 13, handle, &f->refusal), WIRE__CODE__STATE);
        assert_int_equal(plan_drop(f->member[0], 0, 10, &f->refusal), WIRE__CODE__STATE);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        assert_int_equal(ready(f, 1, 1, 0), 0);
        fake_end_one(&f->fake);
        fake_end_one(&f->fake);
        assert_heard("bucket 1;bucket 0;committed 1;");
        assert_int_equal(plan_drop(f->member[0], 0, 10, &f->refusal), 0);
        assert_int_equal(memory_unregister(f->member[0], 13, handle, &f->refusal), 0);
}

TEST(bytes_belong_to_one_plan) {
        uint32_t handle, again, others, another;
        int fd = memfd_sealed(16 * PAGE);

        assert_int_equal(enlist(f, 0, dup(fd), 0, &handle), 0);
        assert_int_equal(enlist(f, 0, dup(fd), 4 * PAGE, &again), 0);
        assert_int_equal(enlist(f, 1, fd, 0, &others), 0);
        assert_int_equal(describe_at(f, 0, 0, handle, 4 * PAGE, 8 * PAGE), 0);
        assert_int_equal(describe_at(f, 0, 1, handle, 0, 5 * PAGE - 64), WIRE__CODE__STATE);
        assert_non_null(strstr(f->refusal.text, "bytes 20416 to 20480"));
        assert_int_equal(describe_at(f, 0, 2, again, 2 * PAGE, 64), WIRE__CODE__STATE);
        assert_int_equal(describe_at(f, 0, 3, handle, 0, 64), WIRE__CODE__INVALID);
        assert_int_equal(describe_at(f, 1, 0, others, 7 * PAGE, 8 * PAGE + 64), WIRE__CODE__STATE);
        assert_non_null(strstr(f->refusal.text, "plan 0 of rank 0 of job 'j'"));
        assert_int_equal(describe_at(f, 0, 4, again, PAGE, 3 * PAGE), 0); /* right beside it, on both sides */
        assert_int_equal(describe_at(f, 0, 5, handle, 16 * PAGE - PAGE + 64, 0), WIRE__CODE__INVALID);
        assert_int_equal(describe_at(f, 0, 6, 99, 0, PAGE), WIRE__CODE__INVALID);
        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), 0, &another), 0);
        assert_int_equal(describe_at(f, 0, 7, another, 4 * PAGE, 8 * PAGE), 0); /* of another file */
        assert_int_equal(describe_at(f, 0, 8, handle, 0, 5 * PAGE - 64),
                         WIRE__CODE__STATE); /* the failed plan has freed nothing */
        assert_int_equal(plan_drop(f->member[0], 0, 10, &f->refusal), 0);
        assert_int_equal(describe_at(f, 0, 9, handle, 2 * PAGE, 8 * PAGE), 0);
        assert_int_equal(describe_at(f, 0, 10, again, 0, 3 * PAGE),
                         WIRE__CODE__STATE); /* plan 4 has 7 to 8 */
        assert_int_equal(describe_at(f, 0, 11, another, 4 * PAGE, 0), WIRE__CODE__STATE);
}

/* A member that has given pages back is evicted; its bucket is not reduced, and the step is void. */
TEST(punched_memory_evicts_its_member) {
        uint32_t handle;

        assert_int_equal(enlist(f, 0, memfd_sealed(16 * PAGE), 0, &handle), 0);
        agree_at(f, handle);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        assert_int_equal(ready(f, 1, 1, 0), 0);
        assert_int_equal(f->fake.submitted, 1);
        f->fake.withdrawn = plan_range(plan_find(f->member[0]->job, 0), 0, 1).memory;
        assert_int_equal(ready(f, 0, 1, 1), 0);
        assert_int_equal(ready(f, 1, 1, 1), 0); /* the honest one is not to blame */
        assert_int_equal(f->fake.submitted, 1);
        assert_heard("evict 0;");
        member_gone(f->member[0], WIRE__CAUSE__EVICTED);
        assert_int_equal(f->fake.n_arenas, 2); /* a task still uses them */
        fake_end_one(&f->fake);
        pass(f);
        assert_heard("void 1;lost 0;");
        assert_int_equal(f->fake.n_arenas, 1);
}

/* Found while it was being reduced, when all was ready already: void all the same, also if the member is gone
 * by then. */
TEST(memory_punched_in_a_reduction_voids_the_step) {
        agree_at(f, 0);
        all_ready(f, 2, 1, 0);
        all_ready(f, 2, 1, 1);
        f->fake.task[0].withdrawn = 2;
        fake_end_one(&f->fake);
        assert_heard("evict 1;");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        fake_end_one(&f->fake);
        pass(f);
        assert_heard("void 1;lost 1;");
}

TEST(memory_of_a_lost_member_is_found_punched) {
        agree_at(f, 0);
        all_ready(f, 2, 1, 0);
        all_ready(f, 2, 1, 1);
        member_gone(f->member[1], WIRE__CAUSE__EXITED);
        f->fake.task[0].withdrawn = 2;
        fake_end_one(&f->fake);
        assert_true(f->fake.task[0].cancelled);
        fake_end_one(&f->fake);
        pass(f);
        assert_heard("evict 1;void 1;lost 1;");
}

/* The same when an operator had held the step back. */
TEST(punched_memory_is_found_when_a_job_is_resumed) {
        agree_at(f, 0);
        job_pause(f->member[0]->job);
        all_ready(f, 2, 1, 0);
        all_ready(f, 2, 1, 1);
        f->fake.withdrawn = plan_range(plan_find(f->member[0]->job, 0), 1, 1).memory;
        job_resume(f->member[0]->job);
        assert_int_equal(f->fake.submitted, 0);
        assert_heard("evict 1;");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        pass(f);
        assert_heard("void 1;lost 1;");
}

TEST(punched_staging_evicts_its_member) {
        struct operation_request call = { .kind = WIRE__OPERATION_KIND__ALLREDUCE,
                                          .dtype = WIRE__DTYPE__F32,
                                          .reduce = WIRE__REDUCE__SUM,
                                          .bytes = 64,
                                          .total = 64 };

        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(staging_ask(f->member[rank], 11, &f->refusal), 0);
                assert_int_equal(staging_attach(f->member[rank], 12, &f->refusal), 0);
        }
        f->fake.withdrawn = f->member[1]->staging.arena->memory;
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(operation_call(f->member[rank], 5, &call, &f->refusal), 0);
        assert_int_equal(f->fake.submitted, 0);
        assert_heard("evict 1;");
        member_gone(f->member[1], WIRE__CAUSE__EVICTED);
        pass(f);
        assert_heard("refused 0 5 35;lost 1;");
}
