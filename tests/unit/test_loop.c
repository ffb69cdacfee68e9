/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: sources, timers, signals, and what is put off to the end of a pass. */
#include "tests.h"

#include <signal.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/loop.h"

struct world {
        struct loop *loop;
        int fds[2];
        struct loop_io *io;
        struct loop_timer *timer;
        struct loop_deferred deferred;
        char trace[256];
        unsigned calls;
        uint64_t passes;
};

static int set_up(void **state) {
        static struct world world;

        world = (struct world){ 0 };
        *state = &world;
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, world.fds) < 0)
                return -1;
        return loop_new(&world.loop);
}

static int tear_down(void **state) {
        struct world *world = *state;

        loop_io_free(world->io);
        loop_timer_free(world->timer);
        loop_free(world->loop);
        close(world->fds[0]);
        close(world->fds[1]);
        return 0;
}

#define TEST(name) TEST_OF(name, struct world *world, set_up, tear_down)

static void note(struct world *world, const char *word) {
        size_t used = strlen(world->trace);
        snprintf(world->trace + used, sizeof(world->trace) - used, "%s ", word);
}

static void stop(void *data) {
        struct world *world = data;
        loop_exit(world->loop, 7);
}

static void on_io(void *data, int fd, unsigned events) {
        struct world *world = data;
        char byte;

        assert_int_equal(fd, world->fds[0]);
        if (events & LOOP_READ) {
                note(world, "read");
                assert_int_equal(read(fd, &byte, 1), 1);
        }
        if (events & LOOP_WRITE) {
                note(world, "write");
                loop_io_set(world->io, LOOP_READ);
                assert_int_equal(write(world->fds[1], "x", 1), 1);
                return;
        }
        loop_exit(world->loop, 3);
}

TEST(sources_are_called_and_switched) {
        assert_int_equal(loop_io_new(world->loop, world->fds[0], LOOP_READ | LOOP_WRITE, on_io, world,
                                     &world->io),
                         0);
        assert_int_equal(loop_run(world->loop), 3);
        assert_string_equal(world->trace, "write read ");
        assert_true(loop_passes(world->loop) >= 2);
}

static void fail_on_io(void *data, int fd, unsigned events) {
        fail_msg("a source that waits for nothing was called with %u", events);
}

/* Also when the other end has gone: a hang-up would else be reported for ever. */
TEST(a_silent_source_is_not_called) {
        assert_int_equal(loop_io_new(world->loop, world->fds[0], LOOP_READ, fail_on_io, world, &world->io),
                         0);
        assert_int_equal(loop_io_set(world->io, 0), 0);
        assert_int_equal(write(world->fds[1], "x", 1), 1);
        shutdown(world->fds[1], SHUT_RDWR);
        assert_int_equal(loop_timer_new(world->loop, stop, world, &world->timer), 0);
        assert_int_equal(loop_timer_arm(world->timer, 20000), 0);
        assert_int_equal(loop_run(world->loop), 7);
        assert_true(loop_passes(world->loop) < 20);
}

/* Setting what is set already needs no system call: it works on an fd that has been closed. */
TEST(an_unchanged_set_makes_no_system_call) {
        int copy = fcntl(world->fds[0], F_DUPFD_CLOEXEC, 100);

        assert_int_equal(loop_io_new(world->loop, copy, LOOP_READ, fail_on_io, world, &world->io), 0);
        close(copy);
        assert_int_equal(loop_io_set(world->io, LOOP_READ), 0);
        assert_true(loop_io_set(world->io, LOOP_READ | LOOP_WRITE) < 0);
}

static void free_yourself(void *data, int fd, unsigned events) {
        struct world *world = data;

        world->calls++;
        world->io = loop_io_free(world->io);
        loop_exit(world->loop, 0);
}

/* Readable and writable at once: the second event must not reach the freed source. */
TEST(a_source_may_free_itself) {
        assert_int_equal(write(world->fds[1], "x", 1), 1);
        assert_int_equal(loop_io_new(world->loop, world->fds[0], LOOP_READ | LOOP_WRITE, free_yourself, world,
                                     &world->io),
                         0);
        assert_int_equal(loop_run(world->loop), 0);
        assert_int_equal(world->calls, 1);
}

TEST(a_file_cannot_be_a_source) {
        /* of a file system without poll(), which FUSE has */
        int fd = memfd_create("file", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(loop_io_new(world->loop, fd, LOOP_READ, fail_on_io, world, &world->io), -EPERM);
        assert_null(world->io);
        close(fd);
}

TEST(timers_are_never_early) {
        uint64_t start = clock_now();

        assert_int_equal(loop_timer_new(world->loop, stop, world, &world->timer), 0);
        for (unsigned i = 0; i < 20; i++) {
                start = clock_now();
                assert_int_equal(loop_timer_arm(world->timer, 1500 + 137 * i), 0);
                assert_int_equal(loop_run(world->loop), 7);
                assert_true(clock_now() - start >= 1500 + 137 * i);
        }
}

static void count_and_stop(void *data) {
        struct world *world = data;
        world->calls++;
        loop_exit(world->loop, 1);
}

TEST(arming_again_replaces) {
        struct loop_timer *other;

        assert_int_equal(loop_timer_new(world->loop, count_and_stop, world, &world->timer), 0);
        assert_int_equal(loop_timer_new(world->loop, stop, world, &other), 0);
        assert_int_equal(loop_timer_arm(world->timer, UINT64_MAX), 0);
        assert_int_equal(loop_timer_arm(world->timer, 0), 0);
        assert_int_equal(loop_run(world->loop), 1);
        assert_int_equal(loop_timer_arm(world->timer, 0), 0);
        loop_timer_disarm(world->timer);
        assert_int_equal(loop_timer_arm(other, 10000), 0);
        assert_int_equal(loop_run(world->loop), 7);
        assert_int_equal(world->calls, 1);
        loop_timer_free(other);
}

static void on_signal(void *data, int number) {
        struct world *world = data;
        loop_exit(world->loop, number);
}

TEST(signals_arrive) {
        struct loop_signal *source;

        assert_int_equal(loop_signal_new(world->loop, SIGHUP, on_signal, world, &source), 0);
        raise(SIGHUP);
        assert_int_equal(loop_run(world->loop), SIGHUP);
        raise(SIGHUP);
        assert_int_equal(loop_run(world->loop), SIGHUP);
        loop_signal_free(source);
}

static void defer_again(void *data) {
        struct world *world = data;

        if (world->calls > 0)
                assert_int_equal(loop_passes(world->loop), world->passes + 1); /* not twice in one pass */
        world->passes = loop_passes(world->loop);
        if (++world->calls < 5)
                loop_defer(world->loop, &world->deferred);
        else
                loop_exit(world->loop, 5);
}

/* The loop has one source that never fires: a pass that blocked would hang here. */
TEST(deferred_work_may_defer_again) {
        assert_int_equal(loop_io_new(world->loop, world->fds[0], LOOP_READ, fail_on_io, world, &world->io),
                         0);
        world->deferred = (struct loop_deferred){ .fn = defer_again, .data = world };
        loop_defer(world->loop, &world->deferred);
        loop_defer(world->loop, &world->deferred);
        assert_int_equal(loop_run(world->loop), 5);
        assert_int_equal(world->calls, 5);
}

static struct loop_deferred first, second, third;

static void run_first(void *data) {
        struct world *world = data;
        note(world, "first");
        loop_defer_cancel(world->loop, &second); /* about to run in this very round */
        loop_defer(world->loop, &first);
        loop_defer_cancel(world->loop, &first);
        loop_defer(world->loop, &third); /* queued already */
}

static void run_second(void *data) {
        note(data, "second");
}

static void run_third(void *data) {
        struct world *world = data;
        note(world, "third");
        loop_exit(world->loop, 0);
}

TEST(deferred_work_can_be_cancelled) {
        first = (struct loop_deferred){ .fn = run_first, .data = world };
        second = (struct loop_deferred){ .fn = run_second, .data = world };
        third = (struct loop_deferred){ .fn = run_third, .data = world };
        loop_defer(world->loop, &first);
        loop_defer(world->loop, &third);
        loop_defer_cancel(world->loop, &third); /* the last one: the queue's end moves back */
        loop_defer(world->loop, &second);
        loop_defer(world->loop, &third);
        assert_int_equal(loop_run(world->loop), 0);
        assert_string_equal(world->trace, "first third ");
        assert_false(second.queued);
        loop_defer_cancel(world->loop, &second);
}

/* Objects that are parked while the daemon goes down are still reaped. */
TEST_ALONE(freeing_the_loop_runs_what_is_parked) {
        struct world world = { 0 };

        assert_int_equal(loop_new(&world.loop), 0);
        first = (struct loop_deferred){ .fn = run_second, .data = &world };
        loop_defer(world.loop, &first);
        loop_free(world.loop);
        assert_string_equal(world.trace, "second ");
}

TEST(a_loop_that_nothing_can_wake_says_so) {
        assert_int_equal(loop_run(world->loop), -EDEADLK);
}
