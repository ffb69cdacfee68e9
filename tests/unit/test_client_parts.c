/* SPDX-License-Identifier: Apache-2.0 */
/* Sized structures, results of a step, error texts, the numbers that header and protocol share, and children
 * of fork(). */
#include "descriptors.h"
#include "tests.h"
#include "tree_fixture.h"

#undef fail /* cmocka's macro; the library has a function of that name */

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "client/lib/base/fail.h"
#include "client/lib/base/options.h"
#include "client/lib/plan/results.h"
#include "gradsync.pb-c.h"
#include "gradsync/gradsync.h"
#include "proto/names.h"

struct old {
        size_t size;
        uint64_t a;
};

struct now {
        size_t size;
        uint64_t a, b;
};

TEST_ALONE(test_structures_of_other_ages) {
        struct {
                struct now now;
                uint64_t newer;
        } later = { { sizeof(later), 5, 6 }, 0 };
        struct old old = { sizeof(old), 3 };
        struct now ours = { sizeof(ours), 1, 2 };

        assert_int_equal(options_take(&ours, sizeof(ours), sizeof(old), NULL, "x"), GRADSYNC_OK);
        assert_int_equal(ours.a, 1);
        assert_int_equal(options_take(&ours, sizeof(ours), sizeof(old), &old, "x"), GRADSYNC_OK);
        assert_int_equal(ours.a, 3);
        assert_int_equal(ours.b, 2); /* the default stays */
        assert_int_equal(options_take(&ours, sizeof(ours), sizeof(old), &later, "x"), GRADSYNC_OK);
        assert_int_equal(ours.b, 6);
        later.newer = 1;
        assert_int_equal(options_take(&ours, sizeof(ours), sizeof(old), &later, "x"), GRADSYNC_UNSUPPORTED);
        old.size = 0;
        assert_int_equal(options_take(&ours, sizeof(ours), sizeof(old), &old, "x"), GRADSYNC_INVALID);
        assert_int_equal(options_check(&old, sizeof(old), "x"), GRADSYNC_INVALID);
}

TEST_ALONE(test_answers_of_other_ages) {
        struct {
                struct now now;
                uint64_t newer;
        } later = { { sizeof(later), 0, 0 }, 9 };
        struct {
                struct old old;
                int canary;
        } old = { { sizeof(struct old), 0 }, 77 };
        struct now ours = { sizeof(ours), 1, 2 };

        options_give(&old, &ours, sizeof(ours));
        assert_int_equal(old.old.a, 1);
        assert_int_equal(old.old.size, sizeof(struct old));
        assert_int_equal(old.canary, 77);
        options_give(&later, &ours, sizeof(ours));
        assert_int_equal(later.now.b, 2);
        assert_int_equal(later.now.size, sizeof(later));
        assert_int_equal(later.newer, 0);
}

static void prepare(struct layout *layout, struct params *params, struct results *results, uint32_t world) {
        uint64_t one = 1;

        for (char name[] = "a"; name[0] <= 'd'; name[0]++)
                assert_int_equal(params_add(params, name, GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_OK);
        assert_int_equal(layout_init(layout, params, 8, 8), GRADSYNC_OK); /* two buckets: c d, a b */
        assert_int_equal(results_init(results, layout, world), GRADSYNC_OK);
}

TEST_ALONE(test_results) {
        double squares[] = { 1, 2, 3 };
        uint64_t nonfinite[] = { 0, 4, 1 };
        uint8_t unused[] = { 2 };
        Wire__BucketResult message = WIRE__BUCKET_RESULT__INIT;
        struct params params = { 0 };
        struct layout layout;
        struct results results = { 0 };
        int64_t rank;

        prepare(&layout, &params, &results, 3);
        message.sum_squares = 7;
        message.rank_sum_squares = squares;
        message.n_rank_sum_squares = 3;
        message.has_unused = true;
        message.unused.data = unused;
        message.unused.len = 1;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_OK);
        assert_true(results.unused[3] && !results.unused[2] &&
                    !results.unused[0]); /* d is the second of its bucket */
        message.bucket = 1;
        message.sum_squares = 9;
        message.has_unused = false;
        message.rank_nonfinite = nonfinite;
        message.n_rank_nonfinite = 3;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_OK);
        assert_true(results_norm(&results) == 4);
        assert_int_equal(results_nonfinite(&results, &rank), 5);
        assert_int_equal(rank, 1);
        message.n_rank_nonfinite = 0;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_OK);
        assert_int_equal(results_nonfinite(&results, &rank), 0);
        assert_int_equal(rank, -1);
        message.bucket = 0;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_OK);
        assert_false(results.unused[3]); /* nothing stays of the result before */
        message.bucket = 2;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_PROTOCOL);
        message.bucket = 0;
        message.n_rank_sum_squares = 2;
        assert_int_equal(results_take(&results, &layout, &message), GRADSYNC_PROTOCOL);
        results_deinit(&results);
        layout_deinit(&layout);
        params_deinit(&params);
}

static void *other_thread(void *data) {
        fail(GRADSYNC_INVALID, "other");
        return NULL;
}

TEST_ALONE(test_texts_are_of_one_thread) {
        pthread_t thread;

        assert_int_equal(fail(GRADSYNC_STATE, "mine %d", 1), GRADSYNC_STATE);
        assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
        pthread_join(thread, NULL);
        assert_string_equal(gradsync_error(), "mine 1");
        fail(GRADSYNC_STATE, "about: %s", gradsync_error()); /* the old text inside the new one */
        assert_string_equal(gradsync_error(), "about: mine 1");
        fail_constant(GRADSYNC_AGAIN, "constant");
        assert_string_equal(gradsync_error(), "constant");
}

/* The protocol's codes are the header's, by number and by name. */
TEST_ALONE(test_numbers_of_header_and_protocol) {
        for (unsigned i = 0; i < wire__code__descriptor.n_values; i++)
                assert_string_equal(gradsync_result_name(wire__code__descriptor.values[i].value),
                                    wire__code__descriptor.values[i].name);
        assert_int_equal(GRADSYNC_MEMBER_LOST, WIRE__CODE__MEMBER_LOST);
        assert_int_equal(GRADSYNC_VERSION, WIRE__CODE__VERSION);
        assert_int_equal(GRADSYNC_DAEMON_LOST, WIRE__CODE__DAEMON_LOST);
        assert_int_equal(GRADSYNC_OPERATION_MISMATCH, WIRE__CODE__OPERATION_MISMATCH);
        assert_int_equal(GRADSYNC_U8, WIRE__DTYPE__U8);
        assert_int_equal(GRADSYNC_BF16, WIRE__DTYPE__BF16);
        assert_int_equal(GRADSYNC_AVG, WIRE__REDUCE__AVG);
        assert_int_equal(GRADSYNC_PROD, WIRE__REDUCE__PROD);
        assert_string_equal(gradsync_result_name(-1), "?");
        assert_string_equal(gradsync_result_name(1000), "?");
}

/* The culprit of a failure goes with its text: the next failure has no culprit. */
TEST_ALONE(test_culprits) {
        struct gradsync_culprit culprit = GRADSYNC_CULPRIT_INIT;
        const struct culprit whom = { 5, 77, "layer4.weight" };

        fail_about(fail(GRADSYNC_PLAN_MISMATCH, "they differ"), &whom);
        assert_int_equal(gradsync_culprit(&culprit), GRADSYNC_OK);
        assert_int_equal(culprit.rank, 5);
        assert_int_equal(culprit.pid, 77);
        assert_string_equal(culprit.parameter, "layer4.weight");
        assert_string_equal(gradsync_error(), "they differ");
        assert_int_equal(fail_about_parameter(fail(GRADSYNC_STATE, "twice"), "bias"), GRADSYNC_STATE);
        assert_int_equal(gradsync_culprit(&culprit), GRADSYNC_OK);
        assert_int_equal(culprit.rank, -1);
        assert_int_equal(culprit.pid, 0);
        assert_string_equal(culprit.parameter, "bias");
        fail_about_member(fail(GRADSYNC_MEMBER_LOST, "lost"), 0, 78);
        fail_constant(GRADSYNC_AGAIN, "again");
        assert_int_equal(gradsync_culprit(&culprit), GRADSYNC_OK);
        assert_int_equal(culprit.rank, -1);
        assert_string_equal(culprit.parameter, "");
        culprit.size = 0;
        assert_int_equal(gradsync_culprit(&culprit), GRADSYNC_INVALID);
        assert_int_equal(gradsync_culprit(NULL), GRADSYNC_INVALID);
}

/* Arguments that need no daemon to be wrong. */
TEST_ALONE(test_null) {
        struct gradsync_info info = GRADSYNC_INFO_INIT;
        struct gradsync *gs = NULL;
        struct gradsync_job *job = NULL;

        assert_int_equal(gradsync_open(NULL, NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_join(gs, NULL, &job), GRADSYNC_INVALID);
        assert_int_equal(gradsync_leave(NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_param(NULL, "x", GRADSYNC_F32, 0, NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_plan(NULL, NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_plan_free(NULL), GRADSYNC_OK);
        assert_int_equal(gradsync_ready(NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(gradsync_absent(NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(gradsync_wait(NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(gradsync_finish(NULL, &info), GRADSYNC_INVALID);
        assert_int_equal(gradsync_barrier(NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_dispatch(NULL), GRADSYNC_INVALID);
        assert_int_equal(gradsync_fd(NULL), -1);
        assert_int_equal(gradsync_world_size(NULL), 0);
        assert_string_equal(gradsync_job_name(NULL), "");
        assert_null(gradsync_gradient(NULL, 0));
        assert_false(gradsync_unused(NULL, 0));
        gradsync_close(NULL);
        info.size = 1;
        assert_int_equal(gradsync_finish(NULL, &info), GRADSYNC_INVALID);
        assert_non_null(strstr(gradsync_error(), "gradsync_info"));
}

/* Whether a child that is forked now has so many descriptors. */
static bool child_has(int n) {
        pid_t pid = fork();
        int status;

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(count_fds() == n ? 0 : 1);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status == 0;
}

static void *open_thread(void *path) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        struct gradsync *gs = NULL;

        options.socket = path;
        return (void *)(intptr_t)gradsync_open(&gs, &options);
}

/* A child that another thread forks while a connection is made has no copy of it, by which the daemon would
 * not notice our end. */
TREE_TEST(test_fork_while_opening) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), first = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        pthread_t thread;
        int before;
        void *result;

        strcpy(address.sun_path, in_tree("socket"));
        assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
        assert_int_equal(listen(listener, 0), 0);
        assert_int_equal(connect(first, (struct sockaddr *)&address, sizeof(address)),
                         0); /* the queue is full: the thread's connect waits */
        before = count_fds();
        assert_int_equal(pthread_create(&thread, NULL, open_thread, address.sun_path), 0);
        while (count_fds() == before)
                sched_yield();
        assert_true(child_has(before));
        close(listener);
        pthread_join(thread, &result);
        assert_int_equal((intptr_t)result, GRADSYNC_NO_DAEMON);
        assert_int_equal(count_fds(), before - 1);
        close(first);
}

static bool closed;

static void *close_thread(void *gs) {
        gradsync_close(gs);
        __atomic_store_n(&closed, true, __ATOMIC_RELEASE);
        return NULL;
}

/* The same while a handle is closed, which takes time if it has large gradients. */
TEST_ALONE(test_fork_while_closing) {
        struct gradsync_options options = GRADSYNC_OPTIONS_INIT;
        uint64_t elements = UINT64_C(8) << 20;
        int before;

        unsetenv("GRADSYNC_SOCKET");
        options.device = "cpu:of-no-daemon";
        before = count_fds();
        for (unsigned turn = 0; turn < 20; turn++) {
                struct gradsync *gs;
                struct gradsync_job *job;
                struct gradsync_plan *plan;
                pthread_t thread;

                assert_int_equal(gradsync_open(&gs, &options), GRADSYNC_OK);
                assert_int_equal(gradsync_join(gs, NULL, &job), GRADSYNC_OK);
                assert_int_equal(gradsync_param(job, "a", GRADSYNC_F64, 1, &elements), GRADSYNC_OK);
                assert_int_equal(gradsync_plan(job, &plan), GRADSYNC_OK);
                closed = false;
                assert_int_equal(pthread_create(&thread, NULL, close_thread, gs), 0);
                while (!__atomic_load_n(&closed, __ATOMIC_ACQUIRE))
                        assert_true(child_has(before));
                pthread_join(thread, NULL);
        }
        assert_int_equal(count_fds(), before);
}
