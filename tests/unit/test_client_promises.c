/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of the library: it unmaps nothing before the daemon has let go of it, it says nothing before it is
 * true, and it loses nothing that the daemon has told it.
 */
#include "client_fixture.h"
#include "descriptors.h"

#include <sched.h>

#include "client/lib/memory/registered.h"
#include "proto/diagnosis.h"

#define LARGE (UINT64_C(64) << 20)

static void *watched; /* a page that must be mapped */

static bool is_mapped(void) {
        return msync(watched, ARENA_PAGE, MS_ASYNC) == 0;
}

/* ---- the last access ---- */

static void script_plan_free(struct played *d) {
        Wire__PlanDropped dropped = WIRE__PLAN_DROPPED__INIT;

        let_begin(d);
        TAKE(d, PLAN_DROP, PlanDrop);
        EXPECT(is_mapped());
        ANSWER(d, PLAN_DROPPED, dropped);
}

PLANNED(test_a_plan_is_there_until_the_daemon_has_let_go, script_plan_free, 2) {
        watched = played.plan->arena.base;
        assert_true(is_mapped());
        assert_int_equal(gradsync_plan_free(played.plan), GRADSYNC_OK);
        assert_false(is_mapped());
}

static void script_leave(struct played *d) {
        Wire__Left left = WIRE__LEFT__INIT;

        let_begin(d);
        TAKE(d, LEAVE, Leave);
        EXPECT(is_mapped());
        ANSWER(d, LEFT, left);
}

PLANNED(test_a_job_is_there_until_the_daemon_has_let_go, script_leave, 2) {
        watched = played.plan->arena.base;
        assert_int_equal(gradsync_leave(played.job), GRADSYNC_OK);
        assert_false(is_mapped());
}

static void script_register(struct played *d) {
        Wire__Registered registered = WIRE__REGISTERED__INIT;
        Wire__Unregistered unregistered = WIRE__UNREGISTERED__INIT;

        let_join(d);
        TAKE(d, REGISTER, Register);
        EXPECT(d->fd >= 0);
        close(d->fd);
        SET(registered, memory, 3);
        ANSWER(d, REGISTERED, registered);
        EXPECT(TAKE(d, UNREGISTER, Unregister)->memory == 3);
        EXPECT(is_mapped());
        ANSWER(d, UNREGISTERED, unregistered);
}

PLAYED(test_registered_memory_is_there_until_the_daemon_has_let_go) {
        int fd = memfd_sealed(ARENA_PAGE);
        struct gradsync_memory *memory;

        play(&played, script_register);
        assert_int_equal(gradsync_register(played.job, fd, 0, ARENA_PAGE, NULL, &memory), GRADSYNC_OK);
        watched = gradsync_memory_address(memory);
        assert_int_equal(gradsync_unregister(memory), GRADSYNC_OK);
        assert_false(is_mapped());
        close(fd);
}

/* ---- the order of two writes ---- */

static void script_absent(struct played *d) {
        const struct diagnosis *page;
        const uint8_t *large;

        let_begin(d);
        large = mmap(NULL, d->arena_bytes, PROT_READ, MAP_SHARED, d->arena, 0);
        page = mmap(NULL, d->control_bytes, PROT_READ, MAP_SHARED, d->control, 0);
        EXPECT(large != MAP_FAILED && page != MAP_FAILED);
        EXPECT(TAKE(d, READY, Ready)->has_absent);
        EXPECT(diagnosis_marked(page, 0));
        EXPECT(page->step == 1 && page->version == DIAGNOSIS_VERSION);
        EXPECT(large[0] == 0 && large[LARGE - 1] == 0);
        munmap((void *)(uintptr_t)page, d->control_bytes);
        munmap((void *)(uintptr_t)large, d->arena_bytes);
        commit(d, 1, 1, 1);
}

/* An absent parameter is zero, and its bit is set, when the daemon hears that its bucket is ready. */
PLAYED(test_what_is_said_is_true) {
        uint64_t elements = LARGE / 4;

        play(&played, script_absent);
        assert_int_equal(gradsync_param(played.job, "large", GRADSYNC_F32, 1, &elements), GRADSYNC_OK);
        assert_int_equal(gradsync_plan(played.job, &played.plan), GRADSYNC_OK);
        memset(gradsync_gradient(played.plan, 0), 1, LARGE);
        assert_int_equal(gradsync_absent(played.plan, 0), GRADSYNC_OK);
        finish(&played, GRADSYNC_OK);
}

static pthread_barrier_t clearing;
static void *slow; /* the memory that is cleared between two turns of `clearing` */

void *__real_memset(void *at, int value, size_t n);
void *__wrap_memset(void *at, int value, size_t n);

void *__wrap_memset(void *at, int value, size_t n) {
        void *expected = at;

        if (at != NULL &&
            __atomic_compare_exchange_n(&slow, &expected, NULL, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
                pthread_barrier_wait(&clearing);
                pthread_barrier_wait(&clearing);
        }
        return __real_memset(at, value, n);
}

static void *absent_thread(void *plan) {
        return (void *)(intptr_t)gradsync_absent(plan, 1);
}

static void script_clears_slowly(struct played *d) {
        let_begin(d);
        pthread_barrier_wait(&gate);
        make_void(d, 1, 1);
        next_generation(d, 2, false);
        EXPECT(TAKE(d, READY, Ready)->generation == 2);
        commit(d, 2, 1, 1);
}

/* A parameter that is still being cleared for a void attempt is not counted in the next one: its bucket has
 * another parameter, which is not ready. */
PLAYED(test_a_void_attempt_clears_nothing_of_the_next_one) {
        pthread_barrier_init(&clearing, NULL, 2);
        play(&played, script_clears_slowly);
        plan_in_buckets(&played, 2, 32);
        slow = gradsync_gradient(played.plan, 1);
        begin_second(absent_thread, played.plan);
        pthread_barrier_wait(&clearing);
        pthread_barrier_wait(&gate);
        DISPATCH_UNTIL(gradsync_generation(played.job) >= 2);
        finish(&played, GRADSYNC_VOID_RETRY);
        assert_int_equal(gradsync_absent(played.plan, 1), GRADSYNC_OK);
        pthread_barrier_wait(&clearing);
        end_second(GRADSYNC_OK);
        assert_int_equal(played.plan->ready.sent, 0);
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
        pthread_barrier_destroy(&clearing);
}

/* ---- stalls ---- */

static unsigned stalls;

static void say_stall(struct played *d, const char *text, bool of_rank) {
        Wire__Stall stall = WIRE__STALL__INIT;

        SET(stall, job, HANDLE);
        SET(stall, step, 1);
        stall.text = (char *)(uintptr_t)text;
        if (of_rank) {
                SET(stall, rank, 1);
                SET(stall, pid, 99);
                stall.process_state = (char *)"stopped";
                stall.parameter = (char *)"a";
                stall.host = (char *)"left";
        }
        NOTICE(d, STALL, stall);
}

static void script_stalls(struct played *d) {
        let_begin(d);
        TAKE(d, READY, Ready);
        say_stall(d, "one", true);
        pthread_barrier_wait(&gate);
        say_stall(d, "two", false);
        pthread_barrier_wait(&gate);
        commit(d, 1, 1, 1);
}

/* While it runs for the first, the second one comes. */
static void on_stall(void *data, struct gradsync_job *job, const struct gradsync_stall *stall) {
        if (++stalls == 2) {
                assert_string_equal(stall->text, "two");
                assert_true(stall->rank == UINT32_MAX && stall->pid == 0);
                assert_string_equal(stall->process_state, "");
                pthread_barrier_wait(&gate);
                return;
        }
        assert_string_equal(stall->text, "one");
        pthread_barrier_wait(&gate);
        DISPATCH_UNTIL(job->stall.pending);
        assert_string_equal(stall->text, "one");
        assert_true(stall->rank == 1 && stall->pid == 99);
        assert_string_equal(stall->process_state, "stopped");
        assert_string_equal(stall->parameter, "a");
        assert_string_equal(stall->host, "left");
        assert_int_equal(stalls, 1);
}

PLAYED(test_a_stall_that_comes_during_the_callback) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;

        options.stall = on_stall;
        play_with(&played, script_stalls, &options);
        plan_of(&played, 1);
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
        assert_int_equal(stalls, 2);
}

/* ---- the environment ---- */

static void script_join(struct played *d) {
        Wire__Joined joined = WIRE__JOINED__INIT;
        const Wire__Join *join = TAKE(d, JOIN, Join);

        EXPECT(join->has_rejoin_grace_ms && join->rejoin_grace_ms == 3000);
        EXPECT(join->token != NULL && strcmp(join->token, "secret") == 0);
        EXPECT(join->spare);
        SET(joined, job, HANDLE);
        SET(joined, generation, 4);
        SET(joined, world, 2);
        ANSWER(d, JOINED, joined);
}

/* Variables that stand beside the launchers' rows. */
PLAYED(test_variables_beside_the_rows) {
        setenv("GRADSYNC_REJOIN_GRACE", "3", 1);
        setenv("GRADSYNC_JOB_TOKEN", "secret", 1);
        setenv("GRADSYNC_SPARE", "1", 1);
        setenv("GRADSYNC_RECONNECT_TIMEOUT", "7.5", 1);
        play(&played, script_join);
        clearenv();
        assert_int_equal(played.gs->reconnect_ms, 7500);
        assert_int_equal(gradsync_generation(played.job), 4);
}

/* ---- a daemon that goes ---- */

#define SHORT_LIVED 200

static void script_short_lived(struct played *d) {
        hang_up(d);
        welcome(d);
        let_join(d);
}

/* Its welcome and its end may be read in one go. The next daemon is awaited either way. */
TEST_ALONE(test_a_daemon_that_goes_right_after_its_welcome) {
        struct played d;

        for (unsigned i = 0; i < SHORT_LIVED; i++) {
                play(&d, script_short_lived);
                assert_int_equal(gradsync_rank(d.job), 1);
                played_end(&d);
        }
}

/* Answers once the member has been in its call, without a daemon, for longer than a join may take. */
static void script_late(struct played *d) {
        Wire__Left left = WIRE__LEFT__INIT;
        bool waits = false;

        let_join(d);
        TAKE(d, LEAVE, Leave);
        ANSWER(d, LEFT, left);
        hang_up(d);
        pthread_barrier_wait(&gate);
        while (!waits) {
                pthread_mutex_lock(&d->gs->link.lock);
                waits = d->gs->link.polling;
                pthread_mutex_unlock(&d->gs->link.lock);
        }
        pass(100);
        welcome(d);
        let_join(d);
}

PLAYED(test_the_time_of_a_join_begins_with_its_daemon) {
        struct gradsync_join_options join = GRADSYNC_JOIN_OPTIONS_INIT;
        struct gradsync_job *job;

        join.name = "job";
        join.min_world = 2;
        join.timeout_ms = 1000;
        play_patient(&played, script_late);
        assert_int_equal(gradsync_leave(played.job), GRADSYNC_OK);
        DISPATCH_UNTIL(played.gs->link.state != LINK_UP);
        pthread_barrier_wait(&gate);
        assert_int_equal(gradsync_join(played.gs, &join, &job), GRADSYNC_OK);
}

/* ---- where a membership stands ---- */

TEST_ALONE(test_states_that_may_follow) {
        static const char *const may[] = {
                [STANDING_OUTSIDE] = ".s..",
                [STANDING_SETTLED] = ".sco",
                [STANDING_CHANGING] = ".sco",
                [STANDING_OVER] = "....",
        };

        for (unsigned from = STANDING_OUTSIDE; from <= STANDING_OVER; from++)
                for (unsigned to = STANDING_OUTSIDE; to <= STANDING_OVER; to++) {
                        struct standing standing = { .state = from, .loss = { .text = "first" } };
                        bool done = standing_set_state(&standing, to, 1, 2, "then");

                        assert_int_equal(done, may[from][to] != '.');
                        assert_int_equal(standing.state, done ? to : from);
                        assert_string_equal(standing.loss.text, done ? "then" : "first");
                }
}

static bool all_is_said;

static void script_over(struct played *d) {
        Wire__Lost lost = WIRE__LOST__INIT;

        let_begin(d);
        TAKE(d, READY, Ready);
        make_void(d, 1, 1);
        SET(lost, job, HANDLE);
        SET(lost, pid, 99);
        lost.text = (char *)"gone";
        NOTICE(d, LOST, lost);
        next_generation(d, 2, true); /* which no daemon says */
        __atomic_store_n(&all_is_said, true, __ATOMIC_SEQ_CST);
}

PLANNED(test_a_job_that_is_over_stays_over, script_over, 1) {
        mark(&played, 0);
        finish(&played, GRADSYNC_VOID_RETRY);
        while (!__atomic_load_n(&all_is_said, __ATOMIC_SEQ_CST))
                sched_yield();
        assert_int_equal(gradsync_barrier(played.job), GRADSYNC_MEMBER_LOST);
        assert_int_equal(gradsync_generation(played.job), 1);
}

/* ---- synchronising the state ---- */

static uint8_t *staging;

static void let_stage(struct played *d) {
        Wire__StagingArena arena = WIRE__STAGING_ARENA__INIT;
        Wire__StagingReady ready = WIRE__STAGING_READY__INIT;
        int fd = memfd_create("staging", MFD_CLOEXEC);

        TAKE(d, STAGING, Staging);
        EXPECT(fd >= 0 && ftruncate(fd, 4 * ARENA_PAGE) == 0);
        staging = mmap(NULL, 4 * ARENA_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT(staging != MAP_FAILED);
        SET(arena, bytes, 4 * ARENA_PAGE);
        say(d, WIRE__MESSAGE_TYPE__STAGING_ARENA, d->request, &arena.base, fd);
        close(fd);
        TAKE(d, STAGING_MAPPED, StagingMapped);
        ANSWER(d, STAGING_READY, ready);
}

/* The next operation, which is of this generation. */
static const Wire__Operation *take_operation(struct played *d, uint32_t generation, uint64_t sequence) {
        const Wire__Operation *operation = TAKE(d, OPERATION, Operation);

        EXPECT(operation->generation == generation && operation->sequence == sequence);
        return operation;
}

static void end_operation(struct played *d) {
        Wire__OperationDone done = WIRE__OPERATION_DONE__INIT;

        ANSWER(d, OPERATION_DONE, done);
}

/* The first operation of a generation gathers this member's entry, and the same one for the other member.
 * Returns the other member's entry, which the script can change until the operation ends. */
static struct sync_entry *gather(struct played *d, uint32_t generation) {
        const Wire__Operation *operation = take_operation(d, generation, 0);

        EXPECT(operation->bytes >= sizeof(struct sync_entry) && operation->sealed);
        for (unsigned rank = 0; rank < 2; rank++)
                memcpy(staging + operation->output + rank * operation->bytes, staging, operation->bytes);
        return (struct sync_entry *)(void *)(staging + operation->output);
}

static void script_synchronised(struct played *d) {
        let_begin(d);
        next_generation(d, 2, true);
        let_stage(d);
        gather(d, 2);
        end_operation(d);
        TAKE(d, READY, Ready);
        next_generation(d, 3, false);
        take_operation(d, 3, 0); /* each generation counts from 0 */
        end_operation(d);
}

/* Synchronises one number, which is 1, in step 5; then they are these. */
static void sync_state(uint64_t step_then, uint64_t weights_then) {
        uint64_t step = 5, weights = 1;
        struct gradsync_state state = { &weights, sizeof(weights) };

        assert_int_equal(gradsync_sync_state(played.job, &state, 1, &step), GRADSYNC_OK);
        assert_int_equal(step, step_then);
        assert_int_equal(weights, weights_then);
        munmap(staging, 4 * ARENA_PAGE);
}

/* Members are behind until they have synchronised, and not after it. */
PLANNED(test_behind_until_synchronised, script_synchronised, 1) {
        DISPATCH_UNTIL(gradsync_generation(played.job) >= 2);
        finish(&played, GRADSYNC_VOID_BEHIND);
        sync_state(5, 1);
        mark(&played, 0);
        finish(&played, GRADSYNC_VOID_RETRY);
        assert_int_equal(gradsync_barrier(played.job), GRADSYNC_OK);
}

static void script_void_before(struct played *d) {
        let_begin(d);
        next_generation(d, 2, false);
        EXPECT(TAKE(d, READY, Ready)->generation == 2);
        commit(d, 2, 1, 1);
}

/* A step that was void before anything was marked in it is not reported, if another call has reported the
 * loss. Gradients that accumulate are no marks. */
PLANNED(test_a_step_that_was_void_before_it_began, script_void_before, 1) {
        DISPATCH_UNTIL(gradsync_generation(played.job) >= 2);
        assert_int_equal(gradsync_barrier(played.job), GRADSYNC_VOID_RETRY);
        assert_int_equal(gradsync_accumulate(played.plan, true), GRADSYNC_OK);
        mark(&played, 0);
        assert_int_equal(gradsync_accumulate(played.plan, false), GRADSYNC_OK);
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
}

static void script_newcomer(struct played *d) {
        uint32_t request;

        let_join(d);
        let_stage(d);
        gather(d, 1);
        request = d->request;
        next_generation(d, 2, true);
        next_generation(d, 3, false);
        d->request = request;
        end_operation(d);
        gather(d, 3);
        end_operation(d);
}

/* A member that comes during the synchronisation has a part in it, also if a generation follows at once. */
PLAYED(test_a_newcomer_during_the_synchronisation) {
        play(&played, script_newcomer);
        sync_state(5, 1);
        assert_int_equal(gradsync_generation(played.job), 3);
        assert_int_equal(played.job->standing.told, 3);
}

static void script_other_is_newer(struct played *d) {
        const Wire__Operation *operation;

        let_begin(d);
        TAKE(d, READY, Ready);
        commit(d, 1, 1, 1);
        let_stage(d);
        gather(d, 1)->step = 9;
        end_operation(d);
        operation = take_operation(d, 1, 1);
        EXPECT(operation->kind == WIRE__OPERATION_KIND__BROADCAST && operation->root == 0);
        EXPECT(operation->sealed);
        *(uint64_t *)(void *)(staging + operation->output) = 77;
        end_operation(d);
}

/* If members have finished the same steps, the one whose trainer counts further has the newest state. */
PLANNED(test_a_trainer_that_counts_further_has_the_newest_state, script_other_is_newer, 1) {
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
        sync_state(9, 77);
}

static void script_half_a_state(struct played *d) {
        let_join(d);
        let_stage(d);
        gather(d, 1)->step = 9;
        end_operation(d);
        take_operation(d, 1, 1);
        end_operation(d);
        take_operation(d, 1, 2);
        next_generation(d, 2, false);
        refuse(d, d->request, WIRE__CODE__VOID_RETRY, NULL);
        EXPECT((gather(d, 2)->claims & STANDING_TORN) != 0);
        end_operation(d);
}

/* A member that has received a part of another one's state has none of its own, and says so. */
PLAYED(test_half_a_state_is_none) {
        static uint8_t weights[8 * ARENA_PAGE];
        struct gradsync_state part = { weights, sizeof(weights) };
        uint64_t step = 5;

        play(&played, script_half_a_state);
        assert_int_equal(gradsync_sync_state(played.job, &part, 1, &step), GRADSYNC_MEMBER_LOST);
        assert_non_null(strstr(gradsync_error(), "no up-to-date rank is left"));
        munmap(staging, 4 * ARENA_PAGE);
}

/* ---- whom a failure is about ---- */

static void script_refuses_a_plan(struct played *d) {
        Wire__Refused refused = WIRE__REFUSED__INIT;

        let_join(d);
        take_plan(d);
        TAKE(d, PLAN_COMMIT, PlanCommit);
        SET(refused, code, WIRE__CODE__PLAN_MISMATCH);
        SET(refused, rank, 0);
        SET(refused, pid, 99);
        refused.parameter = (char *)"b";
        refused.text = (char *)"they differ";
        ANSWER(d, REFUSED, refused);
        let_plan(d);
}

static void assert_culprit(int64_t rank, int32_t pid, const char *parameter) {
        struct gradsync_culprit culprit = GRADSYNC_CULPRIT_INIT;

        assert_int_equal(gradsync_culprit(&culprit), GRADSYNC_OK);
        assert_int_equal(culprit.rank, rank);
        assert_int_equal(culprit.pid, pid);
        assert_string_equal(culprit.parameter, parameter);
}

PLAYED(test_culprits_of_plans_and_steps) {
        uint64_t elements = 4;

        play(&played, script_refuses_a_plan);
        assert_int_equal(gradsync_param(played.job, "a", GRADSYNC_F32, 1, &elements), GRADSYNC_OK);
        assert_int_equal(gradsync_plan(played.job, &played.plan), GRADSYNC_PLAN_MISMATCH);
        assert_culprit(0, 99, "b");
        plan_of(&played, 4);
        mark(&played, 2);
        finish(&played, GRADSYNC_STATE);
        assert_culprit(-1, 0, "a"); /* the first of those that are not marked */
        assert_non_null(strstr(gradsync_error(), "3 of 4 parameters"));
}
