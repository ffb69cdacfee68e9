/* SPDX-License-Identifier: Apache-2.0 */
/* Members that wait for each other in a circle: which ones are found, and when a job is ended for it. */
#include "fixed_fixture.h"
#include "job/watch/deadlock.h"
#include "proto/diagnosis.h"
#include "proto/names.h"
#include "tests.h"

#define TIMEOUT (10 * USEC_PER_SEC)

/* The control memories of the members, by plan. */
static int control[MEMBERS][MEMBERS];

static void agree_on(struct fixture *f, uint32_t ordinal, uint32_t world) {
        for (uint32_t rank = 0; rank < world; rank++) {
                assert_int_equal(describe(f, rank, ordinal, "b", &control[ordinal][rank]), 0);
                assert_int_equal(plan_mapped(f->member[rank], ordinal, 9, &f->refusal), 0);
        }
        heard[0] = '\0';
}

static void form_with(struct fixture *f, uint32_t world, uint32_t plans) {
        form(f, world);
        for (uint32_t ordinal = 0; ordinal < plans; ordinal++)
                agree_on(f, ordinal, world);
        f->jobs->config.deadlock_timeout = TIMEOUT;
}

/* As the library of that member does in the end of a step; 0: it does something else. */
static void block(uint32_t ordinal, uint32_t rank, uint64_t step) {
        assert_int_equal(pwrite(control[ordinal][rank], &step, sizeof(step),
                                offsetof(struct diagnosis, blocked)),
                         sizeof(step));
}

static void mark(uint32_t ordinal, uint32_t rank, uint8_t bits) {
        assert_int_equal(pwrite(control[ordinal][rank], &bits, 1, DIAGNOSIS_BITMAP), 1);
}

static void give(struct fixture *f, uint32_t ordinal, uint32_t rank, uint32_t buckets) {
        for (uint32_t b = 0; b < buckets; b++) {
                struct ready message = { .generation = 1, .plan = ordinal, .step = 1, .bucket = b };

                assert_int_equal(step_ready(f->member[rank], &message, &f->refusal), 0);
        }
        mark(ordinal, rank, (uint8_t)((1u << buckets) - 1));
}

/* All that a member has for a step, and it is in the end of that one. */
static void finish(struct fixture *f, uint32_t ordinal, uint32_t rank) {
        give(f, ordinal, rank, 2);
        block(ordinal, rank, 1);
}

static void call_barrier(struct fixture *f, uint32_t rank, bool blocking) {
        struct operation_request call = { .kind = WIRE__OPERATION_KIND__BARRIER, .blocking = blocking };

        assert_int_equal(operation_call(f->member[rank], 20 + rank, &call, &f->refusal), 0);
}

static void barrier(struct fixture *f, uint32_t rank) {
        call_barrier(f, rank, true);
}

static struct job *job_of(struct fixture *f) {
        return f->member[0]->job;
}

static void expect(struct fixture *f, const char *text) {
        char expected[512], found[512];
        size_t used = 0;

        assert_true(deadlock_describe(job_of(f), found, sizeof(found)));
        /* A # stands for the pid of all of them. */
        for (; *text != '\0' && used < sizeof(expected) - 16; text++)
                if (*text == '#')
                        used += (size_t)snprintf(expected + used, 16, "(pid %d)", (int)getpid());
                else
                        expected[used++] = *text;
        expected[used] = '\0';
        assert_string_equal(found, expected);
}

static void expect_none(struct fixture *f) {
        char text[512];

        assert_false(deadlock_describe(job_of(f), text, sizeof(text)));
        assert_false(deadlock_is_due(job_of(f), 0, clock_now() + 1000 * TIMEOUT));
        assert_false(deadlock_is_due(job_of(f), 0, clock_now() + 2000 * TIMEOUT));
}

#define AND "job 'j': its members wait for each other: "
#define STEP " is at the end of step 1, for which "
#define BARRIER " is in operation 0, barrier, for which "
#define GIVE " has to give its gradients, "
#define CALL " has to make the same call"
#define ALL ". All members have to make the same calls in the same order"

JOB_TEST(a_step_and_an_operation) {
        form_with(f, 2, 1);
        finish(f, 0, 0);
        expect_none(f);
        barrier(f, 1);
        expect(f, AND "rank 0 #" STEP "rank 1" GIVE "\"a\" first; rank 1 #" BARRIER "rank 0" CALL ALL);
        give(f, 0, 1, 1);
        expect(f, AND "rank 0 #" STEP "rank 1" GIVE "\"b\" first; rank 1 #" BARRIER "rank 0" CALL ALL);
}

JOB_TEST(a_step_and_the_agreement_on_a_plan) {
        form_with(f, 2, 1);
        assert_int_equal(describe(f, 1, 1, "b", &control[1][1]), 0);
        assert_int_equal(plan_mapped(f->member[1], 1, 9, &f->refusal), 0);
        finish(f, 0, 0);
        expect_none(f); /* its library does not say so */
        block(1, 1, DIAGNOSIS_AGREEMENT);
        expect(f,
               AND "rank 0 # is at the end of step 1 of plan 0, for which rank 1" GIVE
                   "\"a\" first; rank 1 # is in the making of plan 1, for which rank 0 has to make the same "
                   "plan" ALL);
}

JOB_TEST(the_steps_of_two_plans) {
        form_with(f, 2, 2);
        finish(f, 0, 0);
        finish(f, 1, 1);
        expect(f, AND "rank 0 # is at the end of step 1 of plan 0, for which rank 1" GIVE
                      "\"a\" first; rank 1 # is at the end of step 1 of plan 1, for which rank 0" GIVE
                      "\"a\" first" ALL);
}

/* Each of the three is lacked by one of the others alone. */
JOB_TEST(three_members) {
        form_with(f, 3, 2);
        give(f, 1, 0, 2);
        finish(f, 0, 0);
        finish(f, 1, 1);
        give(f, 0, 2, 2);
        expect_none(f);
        barrier(f, 2);
        expect(f, AND "rank 0 # is at the end of step 1 of plan 0, for which rank 1" GIVE
                      "\"a\" first; rank 1 # is at the end of step 1 of plan 1, for which rank 2" GIVE
                      "\"a\" first; rank 2 #" BARRIER "rank 0" CALL ALL);
}

/* The things that others wait in are no part of it. */
JOB_TEST(others_that_wait_are_not_named) {
        char text[512];

        form_with(f, 4, 1);
        for (uint32_t rank = 0; rank < 3; rank++)
                finish(f, 0, rank);
        barrier(f, 3);
        assert_true(deadlock_describe(job_of(f), text, sizeof(text)));
        assert_non_null(strstr(text, "rank 3"));
        assert_non_null(strstr(text, "rank 0"));
        assert_null(strstr(text, "rank 1 "));
}

/* Another thread of it may give what the others lack. */
JOB_TEST(members_that_do_something_else) {
        form_with(f, 2, 2);
        finish(f, 0, 0);
        call_barrier(f, 1, false);
        expect_none(f);
        finish(f, 1, 1);
        expect(f, AND "rank 0 # is at the end of step 1 of plan 0, for which rank 1" GIVE
                      "\"a\" first; rank 1 # is at the end of step 1 of plan 1, for which rank 0" GIVE
                      "\"a\" first" ALL);
        block(1, 1, 0);
        expect_none(f);
}

/* The text is cut between two characters, and goes to the clients as it is. */
JOB_TEST(long_names_are_cut) {
        char name[200] = "x", text[512];

        for (unsigned i = 0; i < 90; i++)
                strcat(name, "\xc3\xa4");
        form(f, 2);
        for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(describe(f, rank, 0, name, &control[0][rank]), 0);
                assert_int_equal(plan_mapped(f->member[rank], 0, 9, &f->refusal), 0);
        }
        f->jobs->config.deadlock_timeout = TIMEOUT;
        finish(f, 0, 0);
        give(f, 0, 1, 1);
        barrier(f, 1);
        assert_true(deadlock_describe(job_of(f), text, sizeof(text)));
        assert_true(utf8_valid(text, strlen(text)));
        assert_non_null(strstr(text, "\xc3\xa4\" first"));
        for (size_t size = 300; size < 340; size++) {
                assert_true(deadlock_describe(job_of(f), text, size));
                assert_int_equal(strlen(text) < size, true);
                assert_true(utf8_valid(text, strlen(text)));
        }
}

/* Five members, each in the step of a plan that only the next one has not given to: three links are shown. */
JOB_TEST(a_long_circle) {
        uint64_t limits[ACCOUNT_SLOTS];
        char text[1024];

        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                limits[slot] = UINT64_C(1) << 30;
        accounts_set_limits(f->accounts, limits);
        form(f, MEMBERS);
        for (uint32_t ordinal = 0; ordinal < MEMBERS; ordinal++)
                agree_on(f, ordinal, MEMBERS);
        f->jobs->config.deadlock_timeout = TIMEOUT;
        for (uint32_t ordinal = 0; ordinal < MEMBERS; ordinal++)
                for (uint32_t rank = 0; rank < MEMBERS; rank++)
                        if (rank != (ordinal + 1) % MEMBERS)
                                give(f, ordinal, rank, 2);
        for (uint32_t rank = 0; rank < MEMBERS; rank++)
                block(rank, rank, 1);
        assert_true(deadlock_describe(job_of(f), text, sizeof(text)));
        assert_non_null(strstr(text,
                               "step 1 of plan 2, for which rank 3 has to give its gradients, \"a\" first; "
                               "and 2 more" ALL));
}

JOB_TEST(waits_that_end_by_themselves) {
        form_with(f, 3, 1);
        barrier(f, 0);
        barrier(f, 1);
        expect_none(f); /* the third one computes */
        give(f, 0, 2, 2);
        expect_none(f); /* and is not in the end of its step */
        block(0, 2, 2);
        expect_none(f); /* but of another one */
        block(0, 2, 1);
        expect(f, AND "rank 0 #" BARRIER "rank 2" CALL "; rank 2 #" STEP "rank 0" GIVE "\"a\" first" ALL);
}

/* The step waits for nothing that the one in the operation would have to give. */
JOB_TEST(a_member_that_has_given_all) {
        form_with(f, 3, 1);
        finish(f, 0, 0);
        give(f, 0, 1, 2);
        barrier(f, 1);
        expect_none(f); /* the third one will give its gradients */
}

JOB_TEST(the_clock_begins_when_nothing_moves) {
        uint64_t now = clock_now();

        form_with(f, 2, 1);
        barrier(f, 1);
        finish(f, 0, 0);
        assert_false(deadlock_is_due(job_of(f), 0, now));
        assert_false(deadlock_is_due(job_of(f), 0, now + TIMEOUT - 1));
        assert_true(deadlock_is_due(job_of(f), 0, now + TIMEOUT));
        assert_false(deadlock_is_due(job_of(f), TIMEOUT + 1, now + TIMEOUT));
        assert_true(deadlock_is_due(job_of(f), TIMEOUT + 1, now + TIMEOUT + 1));
        mark(0, 1, 1); /* a thread of the member that is in the barrier goes on with its gradients */
        assert_false(deadlock_is_due(job_of(f), 0, now + TIMEOUT + 2));
        assert_false(deadlock_is_due(job_of(f), 0, now + 2 * TIMEOUT + 1));
        assert_true(deadlock_is_due(job_of(f), 0, now + 2 * TIMEOUT + 2));
        block(0, 0, 0); /* it has left the step, and may come again */
        assert_false(deadlock_is_due(job_of(f), 0, now + 3 * TIMEOUT));
        block(0, 0, 1);
        assert_false(deadlock_is_due(job_of(f), 0, now + 3 * TIMEOUT + 1));
        assert_true(deadlock_is_due(job_of(f), 0, now + 4 * TIMEOUT + 1));
}

JOB_TEST(it_can_be_switched_off) {
        uint64_t now = clock_now();

        form_with(f, 2, 1);
        f->jobs->config.deadlock_timeout = 0;
        barrier(f, 1);
        finish(f, 0, 0);
        assert_false(deadlock_is_due(job_of(f), 0, now));
        assert_false(deadlock_is_due(job_of(f), 0, now + 1000 * TIMEOUT));
}

JOB_TEST(a_job_that_is_paused_waits_for_its_operator) {
        form_with(f, 2, 1);
        barrier(f, 1);
        finish(f, 0, 0);
        job_of(f)->paused_at = 1;
        expect_none(f);
        job_of(f)->paused_at = 0;
}

JOB_TEST(all_members_hear_of_it) {
        char text[512];

        form_with(f, 2, 1);
        barrier(f, 1);
        finish(f, 0, 0);
        assert_true(deadlock_describe(job_of(f), text, sizeof(text)));
        job_end_deadlock(job_of(f), text);
        pass(f);
        assert_heard("refused 1 21 36;void 1;lost 0;");
        assert_string_equal(job_of(f)->loss_text, text);
        assert_int_equal(operation_call(f->member[0], 30,
                                        &(struct operation_request){ .kind = WIRE__OPERATION_KIND__BARRIER },
                                        &f->refusal),
                         WIRE__CODE__DEADLOCK);
        assert_string_equal(f->refusal.text, text);
}
