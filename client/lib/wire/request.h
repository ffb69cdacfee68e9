/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to the daemon and its answer. A request outlives the call that asked it, so that a call which
 * was interrupted, or would have blocked, can be repeated and goes on where it was.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/base/fail.h"
#include "proto/codec.h"
#include "proto/fdpass.h"

/* The structure that a request lies in. */
#define OWNER(request, type, member) ((type *)(void *)((char *)(request)-offsetof(type, member)))

struct gradsync;
struct request;

/* Result of a request whose connection was lost before it was answered, and of one whose message was made
 * for another connection. No caller of the library sees it: the message is made anew. */
#define REQUEST_BROKEN (-1)

/* Takes an answer. GRADSYNC_OK, or the result of the request with its text. */
typedef int (*request_answer_fn)(struct request *request, const ProtobufCMessage *message,
                                 struct fdpass_packet *packet);

/* The answer is REFUSED, and no thread waits for it. */
typedef void (*request_refused_fn)(struct request *request);

struct request {
        /* Next open request. */
        struct request *next;
        /* 0: not open. */
        uint32_t id;
        bool answered;
        /* Type of the answer that is not REFUSED. */
        uint16_t expects;
        /* Takes the answer; NULL: nothing in it is of interest. */
        request_answer_fn answer;
        /* Takes a refusal; NULL: a thread waits for the answer. */
        request_refused_fn refused;
        int result;
        /* Text of a result other than OK; owned by the request. */
        char *text;
        struct culprit culprit;
};

/* Chooses an id; from now on the answer is recognised. */
void request_open(struct gradsync *gs, struct request *request, uint16_t expects, request_answer_fn answer);
/* The request is not open any more, and an answer is dropped. Has no effect on a request that is not open. */
void request_close(struct gradsync *gs, struct request *request);
/* Gives the answer that the daemon cannot give any more. Has no effect on a request that is not open, or
 * answered. */
void request_end(struct request *request, int result, const char *text);
/* Returns the result of an answered request, with its text, and closes it. */
int request_take(struct gradsync *gs, struct request *request);

/* Asks and waits: opens and sends the request unless that has been done, waits for the answer, closes the
 * request. AGAIN, INTERRUPTED: it stays open, call again. If no answer came by the deadline, the daemon is
 * given up and the link has failed. */
int request_call(struct gradsync *gs, struct request *request, uint16_t type, const ProtobufCMessage *message,
                 int fd, uint16_t expects, request_answer_fn answer, uint64_t deadline);
/* Waits for the answer to a request that was opened and sent in another way. */
int request_wait(struct gradsync *gs, struct request *request, uint64_t deadline);

/* The daemon has not answered in time: ends the connection, and says so. */
int request_give_up(struct gradsync *gs);

/* A link_message_fn: finds the request that is answered, and gives notices to the handler. */
int request_message(void *owner, const struct frame_header *header, const ProtobufCMessage *message,
                    struct fdpass_packet *packet);
