/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ready: the buckets of the open step that are ready and have not been sent to the daemon. Threads
 * that mark append to it; only ready_send() takes from it, which makes it the only sender of READY. The
 * launch order is fixed by the layout, and each bucket is in the queue once per step. So the queue is a range
 * of that order, and cannot overflow; a bucket that becomes ready before its turn is appended when its turn
 * comes.
 *
 * All is done with the handle's lock held. So the writes of a gradient, which happen before it is marked,
 * happen before READY of its bucket is sent, whichever thread sends it.
 */
#pragma once

#include <stdint.h>

struct gradsync_plan;

struct ready {
        /* Buckets before `sent` have been sent. Those from there to `queued` wait. */
        uint32_t sent, queued;
        /* Scratch of the sender. */
        uint8_t *absent_map;
};

/* All parameters of a bucket are marked: appends buckets that are complete and next in the launch order. */
void ready_append(struct gradsync_plan *plan);
/* Sends as much as the socket has room for; the rest stays. Never waits. OK, or the link has failed. */
int ready_send(struct gradsync_plan *plan);
