/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync: a connection to one daemon with the jobs that were joined over it, or, without a daemon,
 * the world of one. Every public function enters and leaves through it. What comes up from the connection
 * goes to the handlers, by which the layers above are known here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/lib/device/device.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/request.h"
#include "gradsync/gradsync.h"

/* All are called with the lock held; only `waited` may give it up meanwhile. */
struct handlers {
        /* A message that answers no request. OK, or the daemon's mistake. */
        int (*notice)(struct gradsync *gs, uint16_t type, const ProtobufCMessage *message);
        link_event_fn room;
        /* The connection is gone, and another one is looked for. */
        void (*lost)(struct gradsync *gs);
        /* A thread comes back from waiting. */
        void (*waited)(struct gradsync *gs);
        /* Closes the descriptors that are kept for another daemon, as link_abandon() does. */
        void (*abandon)(struct gradsync *gs);
};

#define CONTEXT_TRIED 1024u

struct gradsync {
        /* In the registry of fork.c. */
        struct gradsync *next;
        /* fork_epoch() when it was opened. */
        uint32_t epoch;
        const struct handlers *handlers;
        struct link link;
        /* There is no daemon, and none is needed. */
        bool standalone;
        /* The sockets that were tried. */
        char tried[CONTEXT_TRIED];
        /* Of the daemon. */
        uint64_t instance;
        /* What it serves, and the UUID of a GPU. */
        char device_name[128], device_uuid[64];
        /* It uses the GPU through an MPS server. */
        bool device_mps;
        /* Its jobs can span daemons. */
        bool cluster;
        /* The GPU, once a job has needed it. */
        struct device *device;
        /* Of signal.c, likewise. */
        struct signals *signals;
        /* For HELLO. */
        char program[128];
        /* How long a daemon that is gone is waited for; 0: not at all. */
        uint64_t reconnect_ms;
        /* When a daemon that is gone is not waited for any more; 0: it is there. */
        uint64_t give_up_ns;
        /* Before the next attempt. */
        uint64_t delay_ns;
        /* The daemon has said that it ends, and that another one may follow. */
        bool restarting;
        /* Version of the protocol on this connection. */
        uint32_t minor;
        struct request hello;
        uint32_t last_request;
        /* Open ones. */
        struct request *requests;
        /* Joined and joining. */
        struct gradsync_job *jobs;
        gradsync_stall_fn stall;
        void *stall_data;
};

/* INVALID for NULL, FORKED in a child; else OK with the lock held. */
int context_enter(struct gradsync *gs);
/* Gives the lock back and passes `r` through. */
int context_leave(struct gradsync *gs, int r);

/* Makes gs->device, if the daemon serves a GPU. Other threads go on meanwhile: making a context takes
 * long. */
int context_open_device(struct gradsync *gs);

/* link_wait(), and then the handler. On a link that has failed: its result. */
int context_wait(struct gradsync *gs, uint64_t deadline);
