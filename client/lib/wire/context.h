/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gradsync: a connection to one daemon with the jobs that were joined over it, or, without a daemon,
 * the world of one. Every public function enters and leaves through it. Notices and events of the connection
 * go to the handlers, through which this layer calls the layers above.
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
        /* Next handle in the registry of fork.c. */
        struct gradsync *next;
        /* fork_epoch() when the handle was opened. */
        uint32_t epoch;
        const struct handlers *handlers;
        struct link link;
        /* The handle has no daemon, and needs none. */
        bool standalone;
        /* The sockets that were tried. */
        char tried[CONTEXT_TRIED];
        /* Random id of this run of the daemon. */
        uint64_t instance;
        /* Name of the daemon's device, and its UUID if it is a GPU. */
        char device_name[128], device_uuid[64];
        /* The daemon uses the GPU through an MPS server. */
        bool device_mps;
        /* Jobs of the daemon can span several daemons. */
        bool cluster;
        /* The GPU, once a job has needed it; NULL before. */
        struct device *device;
        /* The signal thread (plan/signal.c), once a plan has needed it; NULL before. */
        struct signals *signals;
        /* The name of the program for HELLO. */
        char program[128];
        /* How long to wait for a lost daemon; 0: not at all. */
        uint64_t reconnect_ms;
        /* Time at which the wait for a lost daemon ends, as clock_ns(); 0: the daemon is there. */
        uint64_t give_up_ns;
        /* Delay before the next attempt to connect. */
        uint64_t delay_ns;
        struct request hello;
        uint32_t last_request;
        /* Open requests. */
        struct request *requests;
        /* Jobs that are joined or being joined. */
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

/* Calls link_wait(), then the handler `waited`. Returns the result of the link if that has failed. */
int context_wait(struct gradsync *gs, uint64_t deadline);
