/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two system calls of a connection. Every fd that the kernel has installed is either handed to the caller
 * in its packet, or dropped here; fdpass_take_control() decides that.
 */
#include "proto/fdpass.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OTHER_CONTROL 512u /* room for control messages that were not asked for */

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

union control {
        struct cmsghdr align;
        /* any packet's fds fit */
        uint8_t space[CMSG_SPACE(FDPASS_FDS_MAX * sizeof(int)) + OTHER_CONTROL];
};

int fdpass_send(int sock, const void *frame, size_t size, const int *fds, unsigned n_fds) {
        union {
                struct cmsghdr align;
                uint8_t space[CMSG_SPACE(FRAME_FDS_MAX * sizeof(int))];
        } control = { .space = { 0 } };
        struct iovec iov = { .iov_base = (void *)(uintptr_t)frame, .iov_len = size };
        struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
        ssize_t sent;

        if (n_fds > FRAME_FDS_MAX)
                return -EINVAL;
        if (n_fds > 0) {
                message.msg_control = control.space;
                message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                control.align.cmsg_level = SOL_SOCKET;
                control.align.cmsg_type = SCM_RIGHTS;
                control.align.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
        }
        do
                sent = sendmsg(sock, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
                return -errno;
        return (size_t)sent == size ? 0 : -EIO; /* a packet is sent whole or not at all */
}

/* Takes the fds that are not handed to the caller. */
struct bin {
        fdpass_drop_fn drop;
        void *data;
};

static void fdpass_close_at_once(void *data, int fd) {
        close(fd);
}

static const struct bin closing = { .drop = fdpass_close_at_once };

static void fdpass_drop_all(struct fdpass_packet *packet, const struct bin *bin) {
        for (unsigned i = 0; i < packet->n_fds; i++)
                bin->drop(bin->data, packet->fds[i]);
        packet->n_fds = 0;
}

void fdpass_close(struct fdpass_packet *packet) {
        fdpass_drop_all(packet, &closing);
}

/* Takes over `count` fds at `data` (not aligned). Surplus ones are dropped at once and make the packet an
 * error. */
static void fdpass_take_fds(struct fdpass_packet *packet, const uint8_t *data, size_t count,
                            const struct bin *bin) {
        for (size_t i = 0; i < count; i++) {
                int fd;

                memcpy(&fd, data + i * sizeof(fd), sizeof(fd));
                if (packet->n_fds < FRAME_FDS_MAX) {
                        packet->fds[packet->n_fds++] = fd;
                } else {
                        bin->drop(bin->data, fd);
                        packet->error = -E2BIG;
                }
        }
}

static void fdpass_drop_pidfd(const uint8_t *data, size_t size) {
        int fd;

        if (size < sizeof(fd))
                return;
        memcpy(&fd, data, sizeof(fd));
        if (fd >= 0)
                close(fd);
}

/* Walks the control data of one packet by hand: the lengths in it are the kernel's, but a walk that trusts
 * none of them is short enough. */
static void fdpass_take_control(struct fdpass_packet *packet, const struct msghdr *message,
                                const struct bin *bin) {
        const uint8_t *at = message->msg_control;
        size_t left = message->msg_controllen;

        while (left >= sizeof(struct cmsghdr)) {
                struct cmsghdr header;
                size_t size, step;

                memcpy(&header, at, sizeof(header));
                if (header.cmsg_len < CMSG_LEN(0) || header.cmsg_len > left)
                        break;
                size = header.cmsg_len - CMSG_LEN(0);
                if (header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_RIGHTS)
                        fdpass_take_fds(packet, at + CMSG_LEN(0), size / sizeof(int), bin);
                else if (header.cmsg_level == SOL_SOCKET && header.cmsg_type == SCM_PIDFD)
                        fdpass_drop_pidfd(at + CMSG_LEN(0), size);
                step = CMSG_ALIGN(header.cmsg_len);
                if (step >= left)
                        break;
                at += step;
                left -= step;
        }
}

/* Fills the packet from what the kernel delivered. fds stay in it only if nothing is wrong with it. */
static void fdpass_take_packet(struct fdpass_packet *packet, const struct mmsghdr *received,
                               const struct bin *bin) {
        packet->size = received->msg_len;
        packet->n_fds = 0;
        packet->error = 0;
        fdpass_take_control(packet, &received->msg_hdr, bin);
        if (received->msg_hdr.msg_flags & MSG_CTRUNC)
                packet->error = -EMFILE;
        else if (received->msg_hdr.msg_flags & MSG_TRUNC)
                packet->error = -EMSGSIZE;
        if (packet->error || packet->size == 0)
                fdpass_drop_all(packet, bin);
}

static int fdpass_receive_batch(int sock, struct mmsghdr *messages, unsigned n) {
        int received;

        do
                received = recvmmsg(sock, messages, n, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, NULL);
        while (received < 0 && errno == EINTR);
        return received < 0 ? -errno : received;
}

static int fdpass_end_of_file(struct fdpass_packet *packet) {
        packet->size = 0;
        packet->n_fds = 0;
        packet->error = 0;
        return 1;
}

static int fdpass_receive_to(int sock, struct fdpass_packet *packets, unsigned n, const struct bin *bin) {
        struct mmsghdr messages[FDPASS_BATCH];
        struct iovec iovs[FDPASS_BATCH];
        union control controls[FDPASS_BATCH];
        int kept = 0;
        bool ended = false;

        if (n == 0 || n > FDPASS_BATCH)
                return -EINVAL;
        for (unsigned i = 0; i < n; i++) {
                iovs[i] = (struct iovec){ .iov_base = packets[i].data, .iov_len = FRAME_MAX };
                messages[i].msg_len = 0;
                messages[i].msg_hdr = (struct msghdr){ .msg_iov = &iovs[i],
                                                       .msg_iovlen = 1,
                                                       .msg_control = &controls[i],
                                                       .msg_controllen = sizeof(controls[i]) };
        }
        int received = fdpass_receive_batch(sock, messages, n);
        /* A peer that closes with unread packets of ours leaves a reset, reported once and before its last
         * packets. */
        if (received == -ECONNRESET)
                received = fdpass_receive_batch(sock, messages, n);
        if (received == -ECONNRESET)
                return fdpass_end_of_file(&packets[0]);
        for (int i = 0; i < received; i++) {
                fdpass_take_packet(&packets[i], &messages[i], bin);
                if (ended)
                        /* an empty packet ends the connection, whatever follows */
                        fdpass_drop_all(&packets[i], bin);
                else
                        kept++;
                ended = ended || (packets[i].size == 0 && packets[i].error == 0);
        }
        return received < 0 ? received : kept;
}

ssize_t fdpass_peek(int sock, void *data, size_t size) {
        struct iovec iov = { .iov_base = data, .iov_len = size };
        struct msghdr message = { .msg_iov = &iov,
                                  .msg_iovlen = 1 }; /* no room for fds: the kernel says so */
        ssize_t n;

        do
                n = recvmsg(sock, &message, MSG_PEEK | MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        return (message.msg_flags & MSG_CTRUNC) != 0 ? -EPROTO : n;
}

int fdpass_receive(int sock, struct fdpass_packet *packets, unsigned n) {
        return fdpass_receive_to(sock, packets, n, &closing);
}

int fdpass_receive_dropping(int sock, struct fdpass_packet *packets, unsigned n, fdpass_drop_fn drop,
                            void *data) {
        return fdpass_receive_to(sock, packets, n, &(struct bin){ .drop = drop, .data = data });
}
