/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blocking connection of the CLI to a daemon: connect, handshake, send, receive, each with a deadline.
 * Joins no job.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "proto/codec.h"

enum talk_result {
        TALK_OK = 0,
        TALK_ABSENT,  /* nothing is there, or nothing listens */
        TALK_DENIED,  /* there, but not for this user */
        TALK_SILENT,  /* it did not answer in time */
        TALK_GONE,    /* it has ended meanwhile, or is about to */
        TALK_CUT,     /* it has hung up in the middle of an answer */
        TALK_BROKEN,  /* it spoke something else */
        TALK_VERSION, /* it speaks another version */
        TALK_REFUSED, /* it refused the request */
        TALK_FAILED,  /* this side: memory, descriptors */
};

struct talk {
        int fd;
        pid_t pid; /* of the daemon, as the kernel says; 0 unknown */
        struct codec codec;
        uint8_t *buffer;
        unsigned timeout_ms; /* for each wait */
        uint32_t request;    /* last one sent */
        bool answered;       /* something of the answer to it has come */
        unsigned minor;      /* of this connection */
        char *version;       /* of the daemon */
        char *device;
        char error[1280]; /* one sentence about the last failure */
};

#define TALK_TIMEOUT 5000u

/* Connects and greets. The talk must be closed with talk_close() whatever the result. */
enum talk_result talk_open(struct talk *talk, const char *path, unsigned timeout_ms);
void talk_close(struct talk *talk);

/* Notes what went wrong in talk->error, and returns `result`. */
enum talk_result talk_fail(struct talk *talk, enum talk_result result, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* A reply. It lives until the next one is received. */
struct talk_reply {
        uint16_t type;
        const ProtobufCMessage *message;
        const uint8_t *payload; /* the same, packed */
        size_t length;
};

enum talk_result talk_send(struct talk *talk, uint16_t type, const ProtobufCMessage *message);
/* The next reply to the last request; others are dropped. */
enum talk_result talk_receive(struct talk *talk, struct talk_reply *ret);
/* Sends a request that has one reply, of type `expected`; `what` names the request in the error text. */
enum talk_result talk_ask(struct talk *talk, uint16_t type, const ProtobufCMessage *message,
                          uint16_t expected, const char *what, const ProtobufCMessage **ret);
