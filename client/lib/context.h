/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync: a connection to one daemon with the jobs that were joined over it, or, without a daemon, the world of
 * one. Every public function enters and leaves through it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/link.h"
#include "client/lib/request.h"
#include "gradsync/gradsync.h"

struct gradsync {
        struct gradsync *next;          /* in the registry of fork.c */
        uint32_t epoch;                 /* fork_epoch() when it was opened */
        struct link link;
        bool standalone;                /* there is no daemon, and none is needed: */
        char tried[512];                /* the sockets that were tried */
        uint64_t staging_bytes;
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
int context_connect(struct gradsync *gs, const struct gradsync_options *options);
/* route.c: hands each message to whom it is for. */
int route_message(void *owner, const struct frame_header *header, const ProtobufCMessage *message, struct fdpass_packet *packet);
/* step.c: launches the buckets that did not fit the socket. */
void context_room(void *owner);
