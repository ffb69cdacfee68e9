/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sendmsg/recvmsg of one SOCK_SEQPACKET packet with fds (SCM_RIGHTS). Every rule about received fds is kept
 * here: close-on-exec always; truncated control data or payload is an error, and all fds that arrived are
 * closed; more than FRAME_FDS_MAX fds is an error, and all are closed. The caller owns the fds in `fds` on
 * success only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"

#define FDPASS_BATCH 16u
#define FDPASS_FDS_MAX 253u /* the kernel passes no more in one packet */

struct fdpass_packet {
        uint8_t *data; /* caller's buffer of FRAME_MAX bytes (receive) or the frame (send) */
        size_t size;   /* bytes received; 0: the peer has closed */
        int fds[FRAME_FDS_MAX];
        unsigned n_fds;
        /* 0, or the error of this packet: -EMSGSIZE larger than FRAME_MAX, -EMFILE control data truncated,
         * -E2BIG too many fds */
        int error;
};

/* Sends one frame, never blocking, never raising SIGPIPE. 0; -EAGAIN if the socket is full; other negative
 * errno: fatal. */
int fdpass_send(int sock, const void *frame, size_t size, const int *fds, unsigned n_fds);

/* Receives up to `n` (<= FDPASS_BATCH) packets with one system call, never blocking. Returns the number
 * received, -EAGAIN if none is there, other negative errno: fatal. A packet with size 0 and error 0 is end
 * of file. */
int fdpass_receive(int sock, struct fdpass_packet *packets, unsigned n);

/* The same, except that drop() takes the fds that are not handed to the caller, which are closed
 * otherwise. */
typedef void (*fdpass_drop_fn)(void *data, int fd);
int fdpass_receive_dropping(int sock, struct fdpass_packet *packets, unsigned n, fdpass_drop_fn drop,
                            void *data);

/* Reads the next packet, or the next bytes of a stream, without removing them. Returns the number of bytes in
 * `data`: these can be received, and no fd comes with them. 0: end of file; -EAGAIN: nothing is there;
 * -EPROTO: fds come with it, and are not touched; other negative errno: fatal. */
ssize_t fdpass_peek(int sock, void *data, size_t size);

/* Closes whatever fds the packet still owns and sets n_fds to 0. */
void fdpass_close(struct fdpass_packet *packet);
