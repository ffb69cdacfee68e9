/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync: a connection to one daemon with the jobs that were joined over it, or, without a daemon, the world of
 * one. Every public function enters and leaves through it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/wire/link.h"
#include "client/lib/wire/request.h"
#include "gradsync/gradsync.h"

struct gradsync {
        struct gradsync *next;          /* in the registry of fork.c */
        uint32_t epoch;                 /* fork_epoch() when it was opened */
        struct link link;
        bool standalone;                /* there is no daemon, and none is needed: */
        char tried[512];                /* the sockets that were tried */
        uint64_t staging_bytes;
        uint64_t instance;              /* of the daemon */
        char program[128];              /* for HELLO */
        uint64_t reconnect_ms;          /* how long a daemon that is gone is waited for; 0: not at all */
        uint64_t lost_ns, give_up_ns;   /* when it went, and when it is not waited for any more; 0: it is there */
        uint64_t delay_ns;              /* before the next attempt */
        bool restarting;                /* it has said that it ends, and that another one may follow */
        uint32_t minor;                 /* version of the protocol on this connection */
        struct request hello;
        uint32_t last_request;
        struct request *requests;       /* open ones */
        struct gradsync_job *jobs;      /* joined and joining */
        gradsync_stall_fn stall;
        void *stall_data;
        bool stalls_pending;            /* some job has a stall to tell */
};

/* INVALID for NULL, FORKED in a child; else OK with the lock held. */
int context_enter(struct gradsync *gs);
/* Gives the lock back and passes `r` through. */
int context_leave(struct gradsync *gs, int r);

/* link_wait(), then tells of stalls with the lock released. */
int context_wait(struct gradsync *gs, uint64_t deadline);

/* connect.c: connects, exchanges HELLO and WELCOME. On success the link is ready, or the handle stands alone. */
int connect_daemon(struct gradsync *gs, const struct gradsync_options *options);
/* Asks for WELCOME; the request is gs->hello. */
int connect_hello(struct gradsync *gs, request_answer_fn answer);
/* Of whoever listens; 0: not known. */
pid_t connect_peer_pid(int sock);
/* reconnect.c: for link_reconnects(). */
void reconnect_lost(void *owner);
void reconnect_retry(void *owner);
/* route.c: hands each message to whom it is for. */
int notices_message(void *owner, const struct frame_header *header, const ProtobufCMessage *message, struct fdpass_packet *packet);
/* context.c: says what did not fit the socket, or had to wait for another one. */
void open_room(void *owner);
