/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a bucket within one step. With one node the reduction is the whole collective. */
#include "job/plan/bucket.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "proto/names.h"

#define ALIGNED _Alignof(max_align_t)

static size_t align(size_t bytes) {
        return (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

static size_t absent_bytes(const struct description_bucket *place) {
        return align((place->n + 7) / 8);
}

static size_t room_bytes(const struct description_bucket *place, const struct backend *backend,
                         uint32_t most) {
        return align(
                backend->compute->room(backend, &(struct backend_task){
                                                        .dtype = place->dtype,
                                                        .elements = place->bytes / dtype_size(place->dtype),
                                                        .n_inputs = most,
                                                        .n_outputs = most,
                                                }));
}

uint64_t buckets_bytes(const struct description *plan, const struct backend *backend, uint32_t most) {
        uint64_t bytes = align(plan->n_buckets * sizeof(struct bucket));

        for (uint32_t b = 0; b < plan->n_buckets; b++)
                bytes += absent_bytes(&plan->bucket[b]) + room_bytes(&plan->bucket[b], backend, most);
        return bytes;
}

struct bucket *buckets_new(const struct description *plan, const struct backend *backend, uint32_t most) {
        struct bucket *bucket = calloc(1, buckets_bytes(plan, backend, most));
        unsigned char *next = (unsigned char *)bucket;

        if (bucket == NULL)
                return NULL;
        next += align(plan->n_buckets * sizeof(struct bucket));
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                size_t room = room_bytes(&plan->bucket[b], backend, most);

                bucket[b].absent = next;
                next += absent_bytes(&plan->bucket[b]);
                bucket[b].room = room > 0 ? next : NULL;
                next += room;
        }
        return bucket;
}

void bucket_set_state(struct bucket *bucket, enum bucket_state state, uint64_t now) {
        assert(state == bucket->state + 1 || state == BUCKET_WAITING ||
               (state == BUCKET_DONE && bucket->state == BUCKET_REDUCING));
        bucket->state = state;
        bucket->since = now;
        if (state == BUCKET_REDUCING)
                bucket->begun = now;
}

void bucket_touch(struct bucket *bucket, uint64_t now) {
        bucket->since = now;
}

void bucket_reset(struct bucket *bucket) {
        bucket_set_state(bucket, BUCKET_WAITING, 0);
        bucket->n_ready = 0;
        bucket->used = false;
}
