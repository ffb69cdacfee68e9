/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readiness on a GPU. A gradient that a stream makes is marked before it is complete, so an event is
 * recorded in the stream after its work. There is one event for each bucket and stream; marking a later
 * parameter of the same two records it again. When a bucket's last parameter is marked, the library's signal
 * thread waits for the bucket's events, without any lock, and only then the bucket can go. There is one such
 * thread for each connection to a daemon that serves a GPU.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/cuda.h"

struct gradsync;
struct gradsync_plan;
struct device;

#define SIGNAL_STREAMS 4u /* most streams that can make one bucket's gradients */

struct signal_bucket {
        struct signal_bucket *next;
        struct gradsync_plan *plan;
        uint32_t bucket;
        bool queued;
        uint64_t epoch; /* epoch of the plan in which the bucket was queued */
        unsigned n;     /* number of streams in this step */
        struct {
                cuda_stream stream;
                cuda_event event;
        } stream[SIGNAL_STREAMS];
};

/* Called with the lock held. */
typedef void (*signal_done_fn)(struct gradsync_plan *plan, uint32_t bucket);

/* The part of a plan that this module owns. */
struct signal_plan {
        signal_done_fn done;
        struct signal_bucket *bucket; /* NULL: its gradients are not on a GPU */
        uint64_t epoch;               /* grows with each step, also with one that is begun again */
};

int signal_init(struct gradsync_plan *plan);
void signal_deinit(struct gradsync_plan *plan);
/* A step begins: events that were recorded before do not count any more. */
void signal_begin(struct gradsync_plan *plan);

/* Records an event: the work that is in the stream now makes gradients of the bucket. */
int signal_record(struct gradsync_plan *plan, uint32_t bucket, cuda_stream stream);
/* Whether the bucket has to wait for events. If so, done() is called when they have ended. */
bool signal_defer(struct gradsync_plan *plan, uint32_t bucket, signal_done_fn done);

/* Ends the thread. Without the lock. */
void signal_end(struct gradsync *gs);
