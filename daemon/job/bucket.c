/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a bucket within one step: WAITING, REDUCING, DONE. With one node the reduction is the whole
 * collective. */
#include "job/bucket.h"

#include <assert.h>
#include <stddef.h>

void bucket_set_state(struct bucket *bucket, enum bucket_state state, uint64_t now) {
        assert(state == bucket->state + 1);
        bucket->state = state;
        bucket->since = now;
}

void bucket_reset(struct bucket *bucket) {
        bucket->state = BUCKET_WAITING;
        bucket->n_ready = 0;
        bucket->used = false;
        bucket->since = 0;
}
