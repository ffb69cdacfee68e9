/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a job: every byte that a client makes the job layer allocate is charged, a request that does
 * not fit is refused, and all of it is given back. The test counts the product's allocations by wrapping
 * malloc.
 */
#include "fixed_fixture.h"
#include "former.h"
#include "tests.h"

#include <malloc.h>

#include "job/rejoin.h"
#include "rendezvous/machine/coordinator.h"

#define SMALL 24576u /* bytes: more than a forming job of two members takes */
#define SLACK 32u    /* what an allocator rounds up to, at most */
#define STEP 256u    /* by which a quota is raised until it is enough */

static int64_t allocated, blocks;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);

static void *counted(void *block, int sign) {
        if (block != NULL) {
                allocated += sign * (int64_t)malloc_usable_size(block);
                blocks += sign;
        }
        return block;
}

void *__wrap_malloc(size_t size) {
        return counted(__real_malloc(size), 1);
}

void *__wrap_calloc(size_t n, size_t size) {
        return counted(__real_calloc(n, size), 1);
}

void *__wrap_realloc(void *block, size_t size) {
        counted(block, -1);
        return counted(__real_realloc(block, size), 1);
}

void __wrap_free(void *block) {
        __real_free(counted(block, -1));
}

static uint64_t used(const struct fixture *f) {
        return accounts_used(f->accounts, 1000, ACCOUNT_OWN);
}

static void limit(struct fixture *f, uint64_t bytes) {
        set_limit(f, ACCOUNT_OWN, bytes);
}

static void leave_all(struct fixture *f) {
        all_gone(f, WIRE__CAUSE__LEAVING);
        pass(f);
}

/* The uid has an account, and the table of jobs what it needs for the first one. */
static int setup_warm(void **state) {
        int r = setup(state);
        struct fixture *f = *state;

        form(f, 2);
        leave_all(f);
        heard[0] = '\0';
        return r;
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup_warm, teardown)

TEST(a_forming_job_of_two_is_small) {
        struct charge hold = { 0 };
        int64_t bytes, before_blocks;
        uint64_t charged;

        assert_int_equal(charge_take(&hold, f->accounts, 1000, ACCOUNT_CLIENTS, 1, NULL), 0);
        bytes = allocated;
        before_blocks = blocks;
        for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(join(f, rank, 3, 0), 0);
        charged = used(f);
        assert_true(charged > 0 && charged < SMALL);
        assert_true(allocated - bytes < (int64_t)SMALL);
        assert_true(allocated - bytes >= (int64_t)charged);
        assert_true(allocated - bytes <= (int64_t)charged + (blocks - before_blocks) * SLACK);
        leave_all(f);
        assert_int_equal(used(f), 0);
        assert_int_equal(allocated, bytes);
        assert_int_equal(blocks, before_blocks);
        charge_release(&hold);
}

/* The coordinator keeps one seat of each member, and nothing else that grows with their number. */
TEST_ALONE(a_member_is_kept_once) {
        struct coordinator_config one = { .room = { .members = 1, .tracks = TRACK_STEP + 1, .nodes = 1 } };
        struct coordinator_config two = one;

        two.room.members = 2;
        assert_int_equal(coordinator_bytes(&two) - coordinator_bytes(&one), sizeof(struct seat));
        assert_true(sizeof(struct seat) < 256);
}

/* The text names what is used, what is asked for, the limit and its key. */
static void assert_refused(const struct fixture *f, int r, uint64_t quota) {
        unsigned held, asked, most;

        assert_int_equal(r, WIRE__CODE__QUOTA);
        assert_int_equal(sscanf(f->refusal.text,
                                "uid 1000 holds %u bytes of the daemon's own memory and asks for %u more, "
                                "the limit is %u:",
                                &held, &asked, &most),
                         3);
        assert_true(held >= used(f) && held <= quota && held + asked > quota && most == quota);
        assert_non_null(strstr(f->refusal.text, "daemon_bytes"));
}

/* The quota may be too small for the job, for its machine, for a member, or for a larger machine. */
TEST(each_join_is_refused_that_does_not_fit) {
        int64_t bytes = allocated, before_blocks = blocks;
        unsigned refused[MEMBERS + 1] = { 0 };
        uint32_t n = 0;

        for (uint64_t quota = 0; n < MEMBERS; quota += STEP) {
                uint64_t before = 0;
                int r = 0;

                limit(f, quota);
                for (n = 0; n < MEMBERS && r == 0; n += r == 0) {
                        before = used(f);
                        r = join(f, n, MEMBERS, 0);
                }
                if (r != 0) {
                        assert_refused(f, r, quota);
                        assert_int_equal(used(f), before);
                        refused[n]++;
                } else {
                        pass(f);
                        assert_heard("joined 0;joined 1;joined 2;joined 3;joined 4;");
                }
                leave_all(f);
                assert_int_equal(used(f), 0);
                assert_int_equal(allocated, bytes);
                assert_int_equal(blocks, before_blocks);
        }
        assert_true(refused[0] > 1 && refused[1] > 0 && refused[MEMBERS - 1] > 1);
}

/* A plan beyond those for which there is room asks for more room. Plans that were agreed before go on,
 * whatever is moved for it. */
JOB_TEST(each_plan_is_refused_that_does_not_fit) {
        uint32_t ordinal = 1, agreed = 0;
        unsigned refused = 0;
        int fd;

        form(f, 2);
        agree(f, 2);
        assert_int_equal(ready(f, 0, 1, 0), 0);
        for (uint64_t quota = used(f); agreed < 2; quota += STEP, ordinal++) {
                uint64_t before = used(f);

                limit(f, quota);
                for (uint32_t rank = 0; rank < 2; rank++)
                        if (describe(f, rank, ordinal, "b", &fd) == 0)
                                plan_mapped(f->member[rank], ordinal, 9, &f->refusal);
                if (strstr(heard, "agreed 0;agreed 1;") != NULL) {
                        agreed++;
                } else {
                        refused++;
                        assert_int_equal(used(f), before);
                }
                heard[0] = '\0';
        }
        assert_true(refused > 2);
        for (uint32_t rank = 0; rank < 2; rank++)
                for (uint32_t bucket = rank == 0; bucket < 2; bucket++)
                        assert_int_equal(ready(f, rank, 1, bucket), 0);
        end_tasks(f);
        assert_heard("bucket 0;bucket 1;committed 1;");
}

static struct job_join former_join(struct fixture *f, uint32_t world) {
        return (struct job_join){ .name = "j",
                                  .uid = 1000,
                                  .pid = getpid(),
                                  .program = "t",
                                  .token = &f->token,
                                  .owner = f,
                                  .owner_members = &f->members,
                                  .membership = { .min_world = world, .max_world = world } };
}

/* The first member that comes back brings all places of the former job. */
static int come_back(struct fixture *f, uint32_t world) {
        struct job_rejoin rejoin = { .join = former_join(f, world),
                                     .secret = former_secret(0),
                                     .generation = 1 };
        struct member *member;

        return jobs_rejoin(f->jobs, &rejoin, &member, &f->refusal);
}

static void leave_job(struct fixture *f, uint32_t world) {
        const struct job_join join = former_join(f, world);

        former_job(f->jobs, &join, 1, world, 0);
}

TEST(a_return_is_refused_that_does_not_fit) {
        leave_job(f, MEMBERS);
        int64_t bytes = allocated, before_blocks = blocks;
        unsigned refused = 0;
        int r;

        for (uint64_t quota = 0;; quota += STEP, refused++) {
                limit(f, quota);
                r = come_back(f, MEMBERS);
                if (r == 0)
                        break;
                assert_int_equal(r, WIRE__CODE__QUOTA);
                assert_int_equal(used(f), 0);
                assert_int_equal(allocated, bytes);
                assert_int_equal(blocks, before_blocks);
        }
        assert_true(refused > MEMBERS);
        assert_true(used(f) > sizeof(struct job) + MEMBERS * sizeof(struct member));
}

/* A newcomer has joined before the job returns. If the job cannot be taken back, the newcomer is refused with
 * it. */
static void refuse_return(struct fixture *f, uint32_t world) {
        leave_job(f, world);
        int64_t bytes = allocated, before_blocks = blocks;
        unsigned refused = 0;
        int r;

        for (uint64_t quota = 0;; quota += STEP, refused++) {
                limit(f, SMALL);
                assert_int_equal(join(f, 1, world, 0), 0);
                limit(f, used(f) + quota);
                r = come_back(f, world);
                if (r == 0)
                        break;
                assert_int_equal(r, WIRE__CODE__QUOTA);
                limit(f, SMALL);
                assert_false(list_empty(&f->jobs->list));
                assert_false(list_entry(f->jobs->list.next, struct job, link)->machine.node.awaits);
                pass(f);
                assert_heard("refused 1 7 25;");
                assert_true(list_empty(&f->members));
                assert_int_equal(used(f), 0);
                assert_int_equal(allocated, bytes);
                assert_int_equal(blocks, before_blocks);
        }
        assert_true(refused > world);
}

/* The machine has to grow for the members that return. */
TEST(a_return_to_newcomers_is_refused_that_does_not_fit) {
        refuse_return(f, MEMBERS);
}

/* The machine is large enough, so the charge of a member is the one that does not fit. */
TEST(so_is_one_to_a_small_job) {
        refuse_return(f, 2);
}
