/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blocking connection of the CLI to a daemon: connect, handshake, send, receive, each with a deadline.
 * Joins no job.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/codec.h"

enum link_result {
        LINK_OK = 0,
        LINK_ABSENT,  /* nothing there, or nobody listens */
        LINK_DENIED,  /* there, but not for this user */
        LINK_SILENT,  /* it did not answer in time */
        LINK_GONE,    /* it has ended meanwhile, or is about to */
        LINK_BROKEN,  /* it spoke something else */
        LINK_VERSION, /* it speaks another version */
        LINK_REFUSED, /* it refused the request */
        LINK_FAILED,  /* this side: memory, descriptors */
};

struct link {
        int fd;
        pid_t pid; /* of the daemon, as the kernel says; 0 unknown */
        struct codec codec;
        uint8_t *buffer;
        unsigned timeout_ms; /* for each wait */
        uint32_t request;    /* last one sent */
        unsigned minor;      /* of this connection */
        char *version;       /* of the daemon */
        char *device;
        char error[1280]; /* one sentence about the last failure */
};

#define LINK_TIMEOUT 5000u
#define LINK_INIT                                                                                            \
        { .fd = -1 }

/* Connects and greets. The link must be closed with link_close() whatever the result. */
enum link_result link_open(struct link *link, const char *path, unsigned timeout_ms);
void link_close(struct link *link);

/* For who uses a link: notes what went wrong on this side, returns LINK_FAILED; or that the daemon's
 * answer cannot be understood, LINK_BROKEN. */
enum link_result link_failed(struct link *link, const char *why);
enum link_result link_confused(struct link *link, const char *why);

enum link_result link_send(struct link *link, uint16_t type, const ProtobufCMessage *message);
/* Next reply to the last request; others are dropped. *ret_payload and *ret_message live until the next call.
 * */
enum link_result link_receive(struct link *link, uint16_t *ret_type, const ProtobufCMessage **ret_message,
                              const uint8_t **ret_payload, size_t *ret_length);
