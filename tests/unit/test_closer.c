/* SPDX-License-Identifier: Apache-2.0 */
/* Closes that may wait. A close that waits holds up no other user's, and its descriptor stays on its user's
 * account. */
#include "tests.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/closer.h"
#include "base/user.h"
#include "proto/gradsync.pb-c.h"

#define LIMIT 3u
#define AT_ONCE 60u
#define ALICE 1000u
#define MALLORY 2000u

struct world {
        struct loop *loop;
        struct users *accounts;
        struct closer *closer;
        struct refusal refusal;
};

/* Descriptors from this one on wait in close until they are let go. */
#define WAITING 500
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool let_go;
static unsigned waiting, closed;

static int close_slowly(int fd) {
        int r;

        pthread_mutex_lock(&lock);
        waiting += fd >= WAITING;
        pthread_cond_broadcast(&changed);
        while (fd >= WAITING && !let_go)
                pthread_cond_wait(&changed, &lock);
        waiting -= fd >= WAITING;
        r = close(fd);
        closed++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        return r;
}

static void await(const unsigned *count, unsigned value) {
        pthread_mutex_lock(&lock);
        while (*count != value)
                pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
}

static bool is(const unsigned *count, unsigned value) {
        pthread_mutex_lock(&lock);
        bool is = *count == value;
        pthread_mutex_unlock(&lock);
        return is;
}

static void release(void) {
        pthread_mutex_lock(&lock);
        let_go = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
}

static int set_up(void **state) {
        static struct world world;
        uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_FDS] = LIMIT };

        world = (struct world){ 0 };
        let_go = false;
        waiting = closed = 0;
        *state = &world;
        if (loop_new(&world.loop) < 0 || users_new(limits, &world.accounts) < 0)
                return -1;
        return closer_new(world.loop, world.accounts, AT_ONCE, close_slowly, &world.closer);
}

static int tear_down(void **state) {
        struct world *world = *state;

        closer_free(world->closer);
        users_free(world->accounts);
        loop_free(world->loop);
        return 0;
}

#define TEST(name) TEST_OF(name, struct world *world, set_up, tear_down)

static int make(int at_least) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), high;

        assert_true(fd >= 0);
        high = fcntl(fd, F_DUPFD_CLOEXEC, at_least);
        assert_true(high >= at_least);
        close(fd);
        return high;
}

static int take(struct world *world, int at_least, uid_t uid) {
        return closer_take(world->closer, make(at_least), uid, &world->refusal);
}

static uint64_t used(const struct world *world, uid_t uid) {
        return accounts_used(world->accounts, uid, ACCOUNT_FDS);
}

struct awaited {
        struct world *world;
        struct loop_deferred look;
        unsigned waiting; /* 0: of the account: */
        uid_t uid;
        uint64_t used;
};

static void look(void *data) {
        struct awaited *awaited = data;
        bool done = awaited->waiting > 0 ? is(&waiting, awaited->waiting)
                                         : used(awaited->world, awaited->uid) <= awaited->used;

        if (done)
                loop_exit(awaited->world->loop, 0);
        else
                loop_defer(awaited->world->loop, &awaited->look);
}

static void await_in_loop(struct awaited *awaited) {
        struct loop *loop = awaited->world->loop;

        awaited->look = (struct loop_deferred){ .fn = look, .data = awaited };
        loop_defer(loop, &awaited->look);
        assert_int_equal(loop_run(loop), 0);
}

/* Runs the loop until no more than so many are on the account. */
static void await_used(struct world *world, uid_t uid, uint64_t value) {
        await_in_loop(&(struct awaited){ .world = world, .uid = uid, .used = value });
}

/* Runs the loop until so many threads wait in close. */
static void await_waiting(struct world *world, unsigned value) {
        await_in_loop(&(struct awaited){ .world = world, .waiting = value });
}

TEST(all_are_closed) {
        int fds[LIMIT];

        for (unsigned i = 0; i < LIMIT; i++) {
                fds[i] = make(0);
                assert_int_equal(closer_take(world->closer, fds[i], ALICE, &world->refusal), 0);
        }
        await_used(world, ALICE, 0);
        for (unsigned i = 0; i < LIMIT; i++)
                assert_int_equal(fcntl(fds[i], F_GETFD), -1);
        assert_int_equal(closed, LIMIT);
}

TEST(who_waits_makes_nobody_else_wait) {
        assert_int_equal(take(world, WAITING, MALLORY), 0);
        await(&waiting, 1);
        assert_int_equal(take(world, 0, MALLORY), 0); /* after the other one */
        for (unsigned round = 0; round < 20; round++) {
                assert_int_equal(take(world, 0, ALICE), 0);
                await_used(world, ALICE, 0);
        }
        assert_int_equal(closed, 20);
        assert_int_equal(used(world, MALLORY), 2);
        release();
        await_used(world, MALLORY, 0);
        assert_int_equal(closed, 22);
}

TEST(several_can_wait_at_a_time) {
        for (unsigned i = 0; i < AT_ONCE; i++) {
                assert_int_equal(take(world, WAITING, MALLORY + i), 0);
                assert_int_equal(take(world, WAITING, MALLORY + i), 0);
        }
        await_waiting(world, AT_ONCE); /* one of each */
        assert_int_equal(take(world, 0, ALICE), 0);
        await_used(world, ALICE, 0);
        release();
        for (unsigned i = 0; i < AT_ONCE; i++)
                await_used(world, MALLORY + i, 0);
}

static bool is_overdrawn(const struct world *world, uid_t uid) {
        const struct user *user = user_find(world->accounts, uid);

        return user != NULL && closer_is_overdrawn(user);
}

TEST(too_many_are_charged_and_told) {
        for (unsigned i = 0; i < LIMIT; i++)
                assert_int_equal(take(world, WAITING, MALLORY), 0);
        assert_int_equal(used(world, MALLORY), LIMIT);
        for (unsigned i = 0; i < CLOSER_SLACK; i++)
                /* as is what comes with a request that is refused */
                assert_int_equal(take(world, WAITING, MALLORY), 0);
        assert_false(is_overdrawn(world, MALLORY));
        assert_int_equal(take(world, WAITING, MALLORY), WIRE__CODE__QUOTA);
        assert_non_null(strstr(world->refusal.text, "fds_per_uid"));
        assert_int_equal(used(world, MALLORY), LIMIT + CLOSER_SLACK + 1);
        assert_true(is_overdrawn(world, MALLORY));
        assert_false(is_overdrawn(world, ALICE));
        release();
        await_used(world, MALLORY, 0);
        assert_false(is_overdrawn(world, MALLORY));
        assert_int_equal(closed, LIMIT + CLOSER_SLACK + 1);
}

TEST(the_end_does_not_wait) {
        assert_int_equal(take(world, WAITING, MALLORY), 0);
        assert_int_equal(take(world, WAITING, MALLORY), 0);
        await(&waiting, 1);
        world->closer = closer_free(world->closer);
        assert_int_equal(used(world, MALLORY), 0);
        release();
        await(&closed, 1); /* its thread still finds what it needs */
}

/* A socket whose close waits for hours, unless a signal comes. */
static int lingering(int *ret_other) {
        struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct linger linger = { .l_onoff = 1, .l_linger = 36000 };
        socklen_t size = sizeof(address);
        static const char data[65536];
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
        assert_int_equal(connect(sock, (struct sockaddr *)&address, size), 0);
        *ret_other = accept(listener, NULL, NULL);
        assert_true(*ret_other >= 0);
        close(listener);
        while (send(sock, data, sizeof(data), MSG_DONTWAIT) > 0)
                ;
        assert_int_equal(setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
        return sock;
}

TEST(a_hurry_ends_waits) {
        int other, sock = lingering(&other);

        closer_close_at_once(world->closer, sock); /* or this test does not end */
        close(other);
}

/* A connection that holds a descriptor which no process has received. */
static int connection_with(int fd) {
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(sizeof(int))];
        } control = { .space = { 0 } };
        char byte = 0;
        struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr message = {
                .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
        };
        int pair[2];

        control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
                                           .cmsg_type = SCM_RIGHTS,
                                           .cmsg_len = CMSG_LEN(sizeof(int)) };
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(sendmsg(pair[1], &message, 0), 1);
        close(pair[1]);
        close(fd);
        return pair[0];
}

TEST(connections_do_not_wait_for_things) {
        assert_int_equal(take(world, WAITING, MALLORY), 0);
        await(&waiting, 1);
        closer_hang_up(world->closer, connection_with(make(0)), MALLORY);
        await_used(world, MALLORY, 1);
        assert_int_equal(closed, 1);
        release();
        await_used(world, MALLORY, 0);
}

TEST(a_connection_ends_at_once_for_its_client) {
        int pair[2];
        char byte;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        int sock = fcntl(pair[1], F_DUPFD_CLOEXEC, WAITING);
        assert_true(sock >= WAITING);
        close(pair[1]);
        closer_hang_up(world->closer, sock, MALLORY);
        assert_int_equal(recv(pair[0], &byte, 1, 0), 0);
        assert_int_equal(send(pair[0], &byte, 1, MSG_NOSIGNAL), -1);
        release();
        await_used(world, MALLORY, 0);
        close(pair[0]);
}

/* The last ones wait for hours, unless there is a signal: when few are left, nothing drives them any more. */
TEST(many_connections_are_in_a_hurry) {
        int other[2 * CLOSER_SLACK];

        for (unsigned i = 0; i < 2 * CLOSER_SLACK; i++)
                closer_hang_up(world->closer, connection_with(lingering(&other[i])), MALLORY);
        await_used(world, MALLORY, CLOSER_SLACK + 1);
        for (unsigned i = 0; i < 2 * CLOSER_SLACK; i++)
                close(other[i]);
        await_used(world, MALLORY, 0);
}

static void leave_loop(void *data) {
        loop_exit(data, 0);
}

/* All threads wait for others when it begins, for longer than it takes to look again. */
TEST(a_hurry_lasts_until_there_is_a_thread) {
        int other[2 * CLOSER_SLACK];
        struct loop_timer *timer = NULL;

        for (unsigned i = 0; i < 2 * AT_ONCE; i++)
                assert_int_equal(take(world, WAITING, 3000 + i), 0);
        await_waiting(world, 2 * AT_ONCE);
        for (unsigned i = 0; i < 2 * CLOSER_SLACK; i++)
                closer_hang_up(world->closer, connection_with(lingering(&other[i])), MALLORY);
        assert_int_equal(loop_timer_new(world->loop, leave_loop, world->loop, &timer), 0);
        assert_int_equal(loop_timer_arm(timer, 20000), 0);
        assert_int_equal(loop_run(world->loop), 0);
        loop_timer_free(timer);
        release();
        await_used(world, MALLORY, CLOSER_SLACK + 1);
        for (unsigned i = 0; i < 2 * CLOSER_SLACK; i++)
                close(other[i]);
        await_used(world, MALLORY, 0);
}
