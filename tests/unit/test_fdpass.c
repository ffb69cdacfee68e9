/* SPDX-License-Identifier: Apache-2.0 */
/* Packets with fds over a socket pair. Every test ends with as many open fds as it began with. */
#include "descriptors.h"
#include "tests.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "proto/fdpass.h"

#define MANY 253u

static uint8_t space[FDPASS_BATCH][FRAME_MAX];
static struct fdpass_packet packets[FDPASS_BATCH];
static int pair[2];
static int open_before;

static int setup(void **state) {
        open_before = count_fds();
        memset(packets, 0x77, sizeof(packets));
        for (unsigned i = 0; i < FDPASS_BATCH; i++)
                packets[i].data = space[i];
        return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair);
}

static int teardown(void **state) {
        for (unsigned i = 0; i < 2; i++)
                if (pair[i] >= 0)
                        close(pair[i]);
        return count_fds() == open_before ? 0 : -1;
}

static void hang_up(void) {
        close(pair[0]);
        pair[0] = -1;
}

/* Sends any number of descriptors and bytes, as a hostile peer may. */
static void send_raw(const void *data, size_t size, unsigned n_fds) {
        union {
                struct cmsghdr header;
                uint8_t space[CMSG_SPACE(MANY * sizeof(int))];
        } control = { .space = { 0 } };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = size };
        struct msghdr message = { .msg_iov = &iov,
                                  .msg_iovlen = 1,
                                  .msg_control = control.space,
                                  .msg_controllen = CMSG_SPACE(n_fds * sizeof(int)) };

        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (unsigned i = 0; i < n_fds; i++)
                memcpy(CMSG_DATA(&control.header) + i * sizeof(int), (int[]){ STDERR_FILENO }, sizeof(int));
        if (n_fds == 0)
                message.msg_controllen = 0;
        assert_int_equal(sendmsg(pair[0], &message, MSG_NOSIGNAL), size);
}

static void assert_end(void) {
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 1);
        assert_int_equal(packets[0].size, 0);
        assert_int_equal(packets[0].error, 0);
        assert_int_equal(packets[0].n_fds, 0);
}

TEST_WITH(bytes_and_fds_arrive, setup, teardown) {
        int pipes[2];
        struct stat sent, got;

        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(fdpass_send(pair[0], "hello", 5, pipes, 2), 0);
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 1);
        assert_int_equal(packets[0].size, 5);
        assert_memory_equal(packets[0].data, "hello", 5);
        assert_int_equal(packets[0].error, 0);
        assert_int_equal(packets[0].n_fds, 2);
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(fcntl(packets[0].fds[i], F_GETFD), FD_CLOEXEC);
                assert_int_equal(fstat(pipes[i], &sent) | fstat(packets[0].fds[i], &got), 0);
                assert_true(sent.st_ino == got.st_ino && sent.st_dev == got.st_dev);
                close(pipes[i]);
        }
        fdpass_close(&packets[0]);
        assert_int_equal(packets[0].n_fds, 0);
        fdpass_close(&packets[0]);
}

TEST_WITH(a_batch_keeps_order_and_owners, setup, teardown) {
        uint8_t byte;

        for (byte = 0; byte < 20; byte++)
                assert_int_equal(fdpass_send(pair[0], &byte, 1, &pair[0], byte % 2), 0);
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), FDPASS_BATCH);
        for (byte = 0; byte < FDPASS_BATCH; byte++) {
                assert_int_equal(packets[byte].size, 1);
                assert_int_equal(packets[byte].data[0], byte);
                assert_int_equal(packets[byte].n_fds, byte % 2);
                fdpass_close(&packets[byte]);
        }
        assert_int_equal(fdpass_receive(pair[1], packets, 3), 3);
        assert_int_equal(packets[2].data[0], 18);
        fdpass_close(&packets[1]);
        assert_int_equal(fdpass_receive(pair[1], packets, 3), 1);
        fdpass_close(&packets[0]);
        assert_int_equal(fdpass_receive(pair[1], packets, 3), -EAGAIN);
}

TEST_WITH(the_largest_frame_passes_and_a_larger_one_is_an_error, setup, teardown) {
        static uint8_t frame[FRAME_MAX + 1];

        frame[FRAME_MAX - 1] = 0x42;
        assert_int_equal(fdpass_send(pair[0], frame, FRAME_MAX, NULL, 0), 0);
        send_raw(frame, FRAME_MAX + 1, 1);
        assert_int_equal(fdpass_receive(pair[1], packets, 2), 2);
        assert_int_equal(packets[0].size, FRAME_MAX);
        assert_int_equal(packets[0].error, 0);
        assert_int_equal(packets[0].data[FRAME_MAX - 1], 0x42);
        assert_int_equal(packets[1].error, -EMSGSIZE);
        assert_int_equal(packets[1].n_fds, 0);
}

TEST_WITH(surplus_fds_are_closed, setup, teardown) {
        int before = count_fds();

        send_raw("x", 1, FRAME_FDS_MAX + 1);
        send_raw("y", 1, FRAME_FDS_MAX);
        send_raw("z", 1, MANY);
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 3);
        assert_int_equal(packets[0].error, -E2BIG);
        assert_int_equal(packets[0].n_fds, 0);
        assert_int_equal(packets[1].error, 0);
        assert_int_equal(packets[1].n_fds, FRAME_FDS_MAX);
        assert_int_equal(packets[2].error, -E2BIG);
        assert_int_equal(packets[2].n_fds, 0);
        assert_int_equal(count_fds(), before + FRAME_FDS_MAX);
        fdpass_close(&packets[1]);
}

TEST_WITH(fds_that_could_not_be_installed_are_an_error, setup, teardown) {
        struct rlimit old, tight;
        int before = count_fds();
        int next = dup(STDERR_FILENO), received;

        close(next);
        send_raw("x", 1, 2);
        send_raw("y", 1, 0);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
        tight = (struct rlimit){ .rlim_cur = (rlim_t)next + 1, .rlim_max = old.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        received = fdpass_receive(pair[1], packets, FDPASS_BATCH);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_int_equal(received, 2);
        assert_int_equal(packets[0].error, -EMFILE);
        assert_int_equal(packets[0].n_fds, 0);
        assert_int_equal(packets[1].error, 0);
        assert_int_equal(count_fds(), before);
}

TEST_WITH(credentials_that_nobody_asked_for_are_skipped, setup, teardown) {
        assert_int_equal(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, (int[]){ 1 }, sizeof(int)), 0);
#ifdef SO_PASSPIDFD
        (void)setsockopt(pair[1], SOL_SOCKET, SO_PASSPIDFD, (int[]){ 1 }, sizeof(int));
#else
        /* kernels that do not know it refuse */
        (void)setsockopt(pair[1], SOL_SOCKET, 76, (int[]){ 1 }, sizeof(int));
#endif
        assert_int_equal(fdpass_send(pair[0], "hello", 5, &pair[0], 1), 0);
        assert_int_equal(fdpass_receive(pair[1], packets, 1), 1);
        assert_int_equal(packets[0].error, 0);
        assert_int_equal(packets[0].n_fds, 1);
        fdpass_close(&packets[0]);
}

TEST_WITH(closing_ends_the_stream, setup, teardown) {
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), -EAGAIN);
        assert_int_equal(fdpass_send(pair[0], "bye", 3, NULL, 0), 0);
        hang_up();
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 2);
        assert_int_equal(packets[0].size, 3);
        assert_int_equal(packets[1].size, 0);
        assert_int_equal(packets[1].error, 0);
        assert_end();
        assert_int_equal(fdpass_send(pair[1], "late", 4, NULL, 0), -EPIPE);
}

TEST_WITH(a_reset_loses_none_of_the_last_packets, setup, teardown) {
        assert_int_equal(fdpass_send(pair[1], "unread", 6, NULL, 0), 0);
        assert_int_equal(fdpass_send(pair[0], "one", 3, NULL, 0), 0);
        assert_int_equal(fdpass_send(pair[0], "two", 3, &pair[1], 1), 0);
        hang_up();
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 3);
        assert_memory_equal(packets[0].data, "one", 3);
        assert_memory_equal(packets[1].data, "two", 3);
        assert_int_equal(packets[1].n_fds, 1);
        assert_int_equal(packets[2].size, 0);
        fdpass_close(&packets[1]);
        assert_end();
}

TEST_WITH(a_reset_alone_is_the_end, setup, teardown) {
        assert_int_equal(fdpass_send(pair[1], "unread", 6, NULL, 0), 0);
        hang_up();
        assert_end();
}

TEST_WITH(an_empty_packet_is_the_end_and_owns_nothing, setup, teardown) {
        int before = count_fds();

        send_raw("first", 5, 0);
        send_raw("", 0, 2);
        send_raw("hidden", 6, 2);
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH), 2);
        assert_int_equal(packets[0].size, 5);
        assert_int_equal(packets[1].size, 0);
        assert_int_equal(packets[1].error, 0);
        assert_int_equal(count_fds(), before);
}

TEST_WITH(a_full_socket_says_so, setup, teardown) {
        static const uint8_t frame[4096];
        unsigned sent = 0;
        int result;

        while ((result = fdpass_send(pair[0], frame, sizeof(frame), NULL, 0)) == 0)
                sent++;
        assert_int_equal(result, -EAGAIN);
        assert_true(sent > 0);
        for (unsigned got = 0; got < sent;) {
                int received = fdpass_receive(pair[1], packets, FDPASS_BATCH);
                assert_true(received > 0);
                got += (unsigned)received;
        }
        assert_int_equal(fdpass_send(pair[0], frame, sizeof(frame), NULL, 0), 0);
}

TEST_WITH(misuse_is_refused, setup, teardown) {
        assert_int_equal(fdpass_send(pair[0], "x", 1, (int[]){ 0, 1, 2 }, FRAME_FDS_MAX + 1), -EINVAL);
        assert_int_equal(fdpass_send(pair[0], "x", 1, (int[]){ -1 }, 1), -EBADF);
        assert_int_equal(fdpass_receive(pair[1], packets, 0), -EINVAL);
        assert_int_equal(fdpass_receive(pair[1], packets, FDPASS_BATCH + 1), -EINVAL);
        assert_int_equal(fdpass_receive(-1, packets, 1), -EBADF);
}
