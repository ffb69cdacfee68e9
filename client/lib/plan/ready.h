/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct ready: the buckets of the open step that are ready and wait for the daemon to be told. Marking appends, from
 * any thread, and nobody but ready_send() takes out, which makes it the only sender of READY. The launch order is
 * fixed by the layout and each bucket is in it once, so the queue is a range of that order and cannot overflow: a bucket
 * that becomes ready early enters when its turn comes.
 *
 * All is done with the handle's lock held. So the writes of a gradient, which happen before it is marked, happen
 * before the READY of its bucket, whichever thread sends that.
 */
#pragma once

#include <stdint.h>

struct gradsync_plan;

struct ready {
        uint32_t sent, queued; /* buckets before `sent` have been said, those from there to `queued` wait */
        uint8_t *absent_map;   /* scratch of the sender */
};

/* All parameters of the bucket are marked. */
void ready_append(struct gradsync_plan *plan, uint32_t bucket);
/* Says as much as the socket has room for; the rest stays. Never waits. OK, or the link has failed. */
int ready_send(struct gradsync_plan *plan);
