/* SPDX-License-Identifier: Apache-2.0 */
/* Steps as the library sees them: their times, their order, and what it says of them to the next daemon. */
#include "client_fixture.h"

#include "client/lib/wire/connect.h"

/* Takes the READYs of so many buckets, in launch order. */
static void take_ready(struct played *d, uint64_t step, uint32_t first, uint32_t end) {
        for (uint32_t b = first; b < end; b++) {
                const Wire__Ready *ready = TAKE(d, READY, Ready);

                EXPECT(ready->job == HANDLE && ready->step == step && ready->bucket == b);
        }
}

static void wait_for_waiters(struct played *d, uint32_t n) {
        uint32_t waiters = 0;

        while (waiters < n) {
                pthread_mutex_lock(&d->gs->link.lock);
                waiters = d->plan != NULL && d->gs->link.polling ? d->plan->waiters : 0;
                pthread_mutex_unlock(&d->gs->link.lock);
        }
}

static void mark_all(struct played *d) {
        for (uint32_t i = gradsync_plan_params(d->plan); i-- > 0;)
                mark(d, i);
}

/* ---- times ---- */

static void script_times(struct played *d) {
        static const unsigned blocked[] = { 5, 2 };

        let_begin(d);
        for (unsigned i = 0; i < 2; i++) {
                take_ready(d, i + 1, 0, 2);
                wait_for_waiters(d, 1);
                pass(blocked[i]);
                commit(d, 1, i + 1, 2);
        }
        take_ready(d, 3, 0, 1);
        wait_for_waiters(d, 1);
        pass(4);
        make_void(d, 1, 3);
        wait_for_waiters(d, 1);
        pass(8);
        next_generation(d, 2, false);
}

/* Only what passes while finish() waits is exposed, and each step has its own. */
PLAYED(test_times_of_steps) {
        struct gradsync_info info;

        play(&played, script_times);
        pass(100);
        plan_of(&played, 2);
        pass(3);
        mark_all(&played);
        info = finish(&played, GRADSYNC_OK);
        assert_true(info.exposed_s == 5 && info.elapsed_s == 8);
        pass(1);
        mark_all(&played);
        info = finish(&played, GRADSYNC_OK);
        assert_true(info.exposed_s == 2 && info.elapsed_s == 3);
        assert_int_equal(played.plan->page->exposed_ns, 7 * NSEC_PER_SEC);
        assert_int_equal(played.plan->page->elapsed_ns, 11 * NSEC_PER_SEC);
        mark(&played, 1);
        pass(16);
        while (played.plan->step.outcome == WIRE__OUTCOME__OPEN)
                assert_int_not_equal(gradsync_wait(played.plan, 1), GRADSYNC_OK);
        info = finish(&played, GRADSYNC_VOID_RETRY);
        assert_true(info.exposed_s == 12 && info.elapsed_s == 28);
        assert_int_equal(played.plan->page->exposed_ns, 19 * NSEC_PER_SEC);
}

/* The step in whose end the member says that it is. */
static uint64_t blocked_in(const struct played *d) {
        return __atomic_load_n(&d->plan->page->blocked, __ATOMIC_RELAXED);
}

static void script_two(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 2);
        wait_for_waiters(d, 1);
        EXPECT(blocked_in(d) == 0);
        pass(2);
        pthread_barrier_wait(&gate);
        wait_for_waiters(d, 2);
        EXPECT(blocked_in(d) == 0);
        pass(4);
        commit(d, 1, 1, 2);
}

static void *wait_thread(void *data) {
        struct played *d = data;

        return (void *)(intptr_t)gradsync_wait(d->plan, gradsync_plan_params(d->plan) - 1);
}

/* Time in which two threads wait counts once, and from when the first one begins. A member with
 * two threads may do something else. */
PLANNED(test_times_of_two_threads, script_two, 2) {
        struct gradsync_info info;
        mark_all(&played);
        begin_second(wait_thread, &played);
        pthread_barrier_wait(&gate);
        info = finish(&played, GRADSYNC_OK);
        end_second(GRADSYNC_OK);
        assert_true(info.exposed_s == 6 && info.elapsed_s == 6);
        assert_int_equal(played.plan->exposed_ns, 6 * NSEC_PER_SEC);
        assert_true(played.plan->step.blocked_ns == 0);
}

/* The thread in finish() hears of the void step and of what follows it before the other one wakes. */
static void script_void_for_two(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 2);
        wait_for_waiters(d, 1);
        pthread_barrier_wait(&gate);
        wait_for_waiters(d, 2);
        pthread_mutex_lock(&d->gs->link.lock);
        make_void(d, 1, 1);
        next_generation(d, 2, false);
        pthread_mutex_unlock(&d->gs->link.lock);
}

static void *wait_later_thread(void *data) {
        pthread_barrier_wait(&gate);
        return wait_thread(data);
}

PLANNED(test_a_void_step_is_void_for_all_threads, script_void_for_two, 2) {
        mark_all(&played);
        begin_second(wait_later_thread, &played);
        finish(&played, GRADSYNC_VOID_RETRY);
        end_second(GRADSYNC_VOID_RETRY);
}

static void script_wait(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 2);
        wait_for_waiters(d, 1);
        EXPECT(blocked_in(d) == 1);
        commit(d, 1, 1, 2);
}

/* Once everything is marked the member is blocked, and no longer than the call waits. */
PLANNED(test_a_wait_of_the_only_thread, script_wait, 2) {
        mark_all(&played);
        assert_int_equal(gradsync_wait(played.plan, 1), GRADSYNC_OK);
        assert_int_equal(blocked_in(&played), 0);
        finish(&played, GRADSYNC_OK);
        assert_int_equal(blocked_in(&played), 0);
}

/* One bucket of the first step; with the last one the step is committed. */
static void say_result(struct played *d, uint32_t bucket, bool last) {
        Wire__BucketResult result = WIRE__BUCKET_RESULT__INIT, *list[] = { &result };
        Wire__Step message = step_of(1, 1);

        SET(result, bucket, bucket);
        message.n_result = 1;
        message.result = list;
        message.has_outcome = last;
        message.outcome = WIRE__OUTCOME__COMMITTED;
        NOTICE(d, STEP, message);
}

static void script_rest(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 1);
        wait_for_waiters(d, 1);
        EXPECT(blocked_in(d) == 0);
        say_result(d, 0, false);
        take_ready(d, 1, 1, 2);
        say_result(d, 1, true);
}

/* In the middle of a step the others may wait for what the member gives afterwards. */
PLANNED(test_a_wait_in_the_middle_of_a_step, script_rest, 2) {
        mark(&played, 1);
        assert_int_equal(gradsync_wait(played.plan, 1), GRADSYNC_OK);
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
}

static void *step_thread(void *data) {
        struct played *d = data;

        mark_all(d);
        return (void *)(intptr_t)gradsync_finish(d->plan, NULL);
}

static void script_other(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 2);
        wait_for_waiters(d, 1);
        EXPECT(blocked_in(d) == (d->job->wish.sequential ? 1 : 0));
        commit(d, 1, 1, 2);
}

/* One thread makes the plan, another one marks and finishes, as with autograd on GPUs. */
TEST_ALONE(test_a_second_thread) {
        struct played d;
        for (int sequential = 0; sequential < 2; sequential++) {
                play(&d, script_other);
                d.job->wish.sequential = sequential;
                plan_of(&d, 2);
                begin_second(step_thread, &d);
                end_second(GRADSYNC_OK);
                played_end(&d);
        }
}

/* A second one for collectives and plans, or a third one: what they do is not known, promised or not. */
TEST_ALONE(test_who_waits_alone) {
        struct callers callers = { 0 };

        assert_true(callers_wait_alone(&callers, false));
        assert_false(callers_note_home(&callers));
        assert_false(callers_note_step(&callers));
        assert_true(callers_wait_alone(&callers, false));
        callers.home = (pthread_t)1;
        assert_false(callers_note_step(&callers));
        assert_false(callers_wait_alone(&callers, false));
        assert_true(callers_wait_alone(&callers, true));
        assert_true(callers_note_home(&callers));
        assert_false(callers_note_home(&callers));
        assert_false(callers_wait_alone(&callers, true));
        callers = (struct callers){
                .has_home = true, .home = (pthread_t)1, .has_other = true, .other = (pthread_t)2
        };
        assert_true(callers_note_step(&callers));
        assert_false(callers_wait_alone(&callers, true));
}

/* ---- the queue ---- */

static void script_order(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 4);
        commit(d, 1, 1, 4);
}

/* Buckets that are ready early wait for those before them. */
PLANNED(test_buckets_go_in_launch_order, script_order, 4) {
        mark(&played, 1);
        mark(&played, 2);
        assert_int_equal(played.plan->ready.queued, 0);
        mark(&played, 3);
        assert_int_equal(played.plan->ready.queued, 3);
        assert_int_equal(played.plan->ready.sent, 3);
        mark(&played, 0);
        finish(&played, GRADSYNC_OK);
        assert_int_equal(played.plan->ready.queued, 0);
        assert_int_equal(played.plan->ready.sent, 0);
}

/* Takes the READY of a bucket in which the parameters with these bits are absent. */
static void take_absent(struct played *d, uint64_t step, uint32_t bucket, uint8_t bits) {
        const Wire__Ready *ready = TAKE(d, READY, Ready);

        EXPECT(ready->step == step && ready->bucket == bucket);
        EXPECT(ready->has_absent == (bits != 0));
        EXPECT(bits == 0 || (ready->absent.len == 1 && ready->absent.data[0] == bits));
}

static void script_absent(struct played *d) {
        let_begin(d);
        take_absent(d, 1, 0, 1);
        take_absent(d, 1, 1, 2);
        commit(d, 1, 1, 2);
        take_absent(d, 2, 0, 0);
        take_absent(d, 2, 1, 1);
        commit(d, 1, 2, 2);
}

/* The daemon takes gradients of absent parameters for zero: a bit too many would lose one. The buckets are c
 * d, and a b. */
PLAYED(test_absent_parameters_of_each_bucket) {
        static const bool absent[][4] = { { false, true, true, false }, { true, false, false, false } };

        play(&played, script_absent);
        plan_in_buckets(&played, 4, 32);
        for (unsigned step = 0; step < 2; step++) {
                for (uint32_t i = 4; i-- > 0;)
                        assert_int_equal((absent[step][i] ? gradsync_absent : gradsync_ready)(played.plan, i),
                                         GRADSYNC_OK);
                finish(&played, GRADSYNC_OK);
        }
}

static void script_slow_reader(struct played *d) {
        let_begin(d);
        pthread_barrier_wait(&gate); /* all are marked, and the socket was full */
        take_ready(d, 1, 0, 26);
        pthread_barrier_wait(&gate);
}

static void make_room_little(struct played *d) {
        int little = 1;

        assert_int_equal(setsockopt(d->gs->link.sock, SOL_SOCKET, SO_SNDBUF, &little, sizeof(little)), 0);
}

/* A socket that takes no more does not make ready() wait; what it could not say is said in order. */
PLANNED(test_a_reader_that_is_slow, script_slow_reader, 26) {
        make_room_little(&played);
        mark_all(&played);
        assert_int_equal(played.plan->ready.queued, 26);
        assert_in_range(played.plan->ready.sent, 0, 25);
        assert_true(played.gs->link.full);
        pthread_barrier_wait(&gate);
        DISPATCH_UNTIL(played.plan->ready.sent == 26);
        pthread_barrier_wait(&gate);
}

static void script_late_reader(struct played *d) {
        let_begin(d);
        pthread_barrier_wait(&gate);
        take_ready(d, 1, 0, 26);
        commit(d, 1, 1, 26);
}

/* A thread that is in poll() sends the rest as soon as there is room, also if it has begun to wait before the
 * socket was full. */
PLANNED(test_a_thread_that_waits_looks_for_room, script_late_reader, 26) {
        make_room_little(&played);
        mark(&played, 25);
        begin_second(wait_thread, &played);
        wait_for_waiters(&played, 1);
        for (uint32_t i = 25; i-- > 0;)
                mark(&played, i);
        pthread_barrier_wait(&gate);
        end_second(GRADSYNC_OK);
        finish(&played, GRADSYNC_OK);
}

static void script_threads(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, 24);
        commit(d, 1, 1, 24);
}

static void *mark_thread(void *data) {
        struct played *d = data;
        uint32_t n = gradsync_plan_params(d->plan);

        for (uint32_t i = 0; i < n; i++)
                gradsync_ready(d->plan, i); /* of those that another thread was first with: STATE */
        return NULL;
}

/* The library announces each bucket once, and in order, however threads mark parameters. */
PLANNED(test_many_threads_mark, script_threads, 24) {
        pthread_t thread[4];

        for (unsigned i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&thread[i], NULL, mark_thread, &played), 0);
        for (unsigned i = 0; i < 4; i++)
                pthread_join(thread[i], NULL);
        assert_int_equal(played.plan->ready.sent, 24);
        finish(&played, GRADSYNC_OK);
}

/* ---- what the next daemon is told ---- */

struct told {
        uint64_t step;
        uint32_t generation;
};

static struct told told;
static enum { OPENED, COMMITTED, VOIDED, BEHIND } how;

/* Returns the generation in which the member says that it is. */
static uint32_t let_rejoin(struct played *d) {
        Wire__Rejoined rejoined = WIRE__REJOINED__INIT;
        uint32_t generation = TAKE(d, REJOIN, Rejoin)->generation;

        SET(rejoined, job, HANDLE);
        ANSWER(d, REJOINED, rejoined);
        return generation;
}

static void resume(struct played *d) {
        Wire__Resumed resumed = WIRE__RESUMED__INIT;

        SET(resumed, job, HANDLE);
        SET(resumed, generation, 2);
        NOTICE(d, RESUMED, resumed);
}

static void take_back(struct played *d) {
        told.generation = let_rejoin(d);
        take_plan(d);
        told.step = TAKE(d, REJOIN_PLAN, RejoinPlan)->step;
        EXPECT(d->n_fds == 2);
        close(d->fd);
        TAKE(d, REJOIN_END, RejoinEnd);
}

static void script_rejoin(struct played *d) {
        let_begin(d);
        take_ready(d, 1, 0, how == COMMITTED ? 3 : 2);
        if (how == COMMITTED)
                commit(d, 1, 1, 3);
        if (how == VOIDED)
                make_void(d, 1, 1);
        if (how == BEHIND)
                next_generation(d, 2, true);
        hang_up(d);
        welcome(d);
        take_back(d);
        if (how == VOIDED || how == BEHIND) {
                next_generation(d, 3, how == BEHIND);
                return;
        }
        if (how == OPENED)
                pthread_barrier_wait(&gate); /* what is marked until then waits */
        resume(d);
        if (how == COMMITTED)
                return;
        take_ready(d, 1, 0, 3); /* all of them, once more */
        commit(d, 2, 1, 3);
}

/* Two of three buckets are said, or all of a step that is committed, when the daemon goes. */
static void rejoin(int way, int result) {

        how = way;
        told = (struct told){ .step = 77 };
        play_patient(&played, script_rejoin);
        plan_of(&played, 3);
        for (uint32_t i = 3; i-- > (how == COMMITTED ? 0 : 1);)
                mark(&played, i);
        DISPATCH_UNTIL(played.gs->link.connection != 0 &&
                       played.job->rejoin.phase == (how == OPENED ? REJOIN_TOLD : REJOIN_NONE));
        if (how == OPENED) {
                mark(&played, 0);
                assert_int_equal(played.plan->ready.queued, 3);
                assert_int_equal(played.plan->ready.sent, 2);
                pthread_barrier_wait(&gate);
        }
        finish(&played, result);
}

PLAYED(test_rejoin_from_an_open_step) {
        rejoin(OPENED, GRADSYNC_OK);
        assert_true(told.step == 0 && told.generation == 1);
}

PLAYED(test_rejoin_from_a_committed_step) {
        rejoin(COMMITTED, GRADSYNC_OK);
        assert_true(told.step == 1 && told.generation == 1);
}

PLAYED(test_rejoin_from_a_void_step) {
        rejoin(VOIDED, GRADSYNC_VOID_RETRY);
        assert_true(told.step == 0 && told.generation == 1);
}

/* The member has not taken the state of its generation yet. */
PLAYED(test_rejoin_before_the_state_is_taken) {
        rejoin(BEHIND, GRADSYNC_VOID_BEHIND);
        assert_true(told.step == 0 && told.generation == 2);
}

/* ---- looking for the next daemon ---- */

static void script_gone(struct played *d) {
        let_join(d);
        shutdown(d->listener, SHUT_RDWR);
        hang_up(d);
}

static void script_refuses(struct played *d) {
        let_join(d);
        hang_up(d);
        take_hello(d);
        refuse(d, 0, WIRE__CODE__QUOTA, "too many clients");
        hang_up(d);
        welcome(d);
        let_rejoin(d);
        TAKE(d, REJOIN_END, RejoinEnd);
        resume(d);
        shutdown(d->listener, SHUT_RDWR);
        hang_up(d);
}

/* A daemon that refused this process, before another one took it back, is not to blame for the next loss.
 * Errors name the daemon of the last connection. */
PLAYED(test_an_old_refusal_is_forgotten) {
        char pid[32];

        play_patient(&played, script_refuses);
        played.gs->link.daemon = 1; /* of another process than the next one */
        DISPATCH_UNTIL(gradsync_generation(played.job) >= 2 && played.gs->link.state != LINK_UP);
        assert_int_not_equal(played.job->rejoin.phase,
                             REJOIN_NONE); /* it goes on only when it is taken back */
        pass(700);
        while (gradsync_dispatch(played.gs) == GRADSYNC_OK)
                ;
        assert_non_null(strstr(gradsync_error(), "no other one has answered"));
        snprintf(pid, sizeof(pid), "gradsyncd (pid %d,", (int)getpid());
        assert_non_null(strstr(gradsync_error(), pid));
}

/* The pause between two attempts doubles, up to a fifth of a second. */
PLAYED(test_the_pause_between_attempts) {
        uint64_t ms = 2;

        play_patient(&played, script_gone);
        DISPATCH_UNTIL(played.gs->link.state != LINK_UP);
        for (unsigned i = 0; i < 12; i++) {
                if (i == 0)
                        played.gs->delay_ns = ms * NSEC_PER_MSEC; /* attempts may have been made before */
                assert_int_equal(played.gs->delay_ns, ms * NSEC_PER_MSEC);
                reconnect_retry(played.gs);
                ms = ms * 2 < 200 ? ms * 2 : 200;
        }
}
