/* SPDX-License-Identifier: Apache-2.0 */
/* The context's side of the socket: a packet is a request or a reply, with at most one descriptor. */
#include <string.h>
#include <sys/socket.h>

#include "gpu.h"

bool packet_receive(int client, struct gpu_request *request, void *payload, int *ret_fd) {
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control;
        struct iovec parts[] = { { request, sizeof(*request) }, { payload, GPU_PAYLOAD } };
        struct msghdr message = {
                .msg_iov = parts, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof(control)
        };
        ssize_t n = recvmsg(client, &message, MSG_CMSG_CLOEXEC);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);

        *ret_fd = -1;
        if (n > 0 && header != NULL && header->cmsg_type == SCM_RIGHTS)
                memcpy(ret_fd, CMSG_DATA(header), sizeof(int));
        return n >= (ssize_t)sizeof(*request) && (size_t)n == sizeof(*request) + request->bytes;
}

void packet_reply(int client, const struct gpu_reply *reply, int fd) {
        union {
                char bytes[CMSG_SPACE(sizeof(int))];
                struct cmsghdr align;
        } control = { { 0 } };
        struct iovec part = { (void *)reply, sizeof(*reply) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

        if (fd >= 0) {
                message.msg_control = &control;
                message.msg_controllen = sizeof(control);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                *header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
                memcpy(CMSG_DATA(header), &fd, sizeof(int));
        }
        sendmsg(client, &message, MSG_NOSIGNAL);
}
