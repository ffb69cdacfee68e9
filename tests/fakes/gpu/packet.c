/* SPDX-License-Identifier: Apache-2.0 */
/* Packets over a socket, with at most one descriptor. See gpu.h. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "gpu.h"

union control {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
};

ssize_t packet_receive(int from, struct iovec *parts, size_t n_parts, int *ret_fd) {
        union control control;
        struct msghdr message = { .msg_iov = parts,
                                  .msg_iovlen = n_parts,
                                  .msg_control = &control,
                                  .msg_controllen = sizeof(control) };
        ssize_t n;

        do
                n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
        *ret_fd = -1;
        if (header != NULL && header->cmsg_type == SCM_RIGHTS)
                memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
        return n;
}

ssize_t packet_send(int to, struct iovec *parts, size_t n_parts, int fd) {
        union control control = { { 0 } };
        struct msghdr message = { .msg_iov = parts, .msg_iovlen = n_parts };

        if (fd >= 0) {
                message.msg_control = &control;
                message.msg_controllen = sizeof(control);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                *header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
                memcpy(CMSG_DATA(header), &fd, sizeof(int));
        }
        return sendmsg(to, &message, MSG_NOSIGNAL);
}
