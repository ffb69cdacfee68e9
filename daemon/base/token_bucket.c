/* SPDX-License-Identifier: Apache-2.0 */
#include "token_bucket.h"

#include "clock.h"

double token_bucket_fill(struct token_bucket *bucket, double rate, double most, uint64_t now) {
        bucket->left += (double)(now - bucket->last) * rate / USEC_PER_SEC;
        bucket->last = now;
        if (bucket->left > most)
                bucket->left = most;
        return bucket->left;
}

bool token_bucket_take(struct token_bucket *bucket, uint64_t rate, uint64_t now) {
        if (token_bucket_fill(bucket, (double)rate, (double)rate, now) < 1)
                return false;
        bucket->left -= 1;
        return true;
}

bool token_bucket_is_full(const struct token_bucket *bucket, uint64_t now) {
        return now - bucket->last >= USEC_PER_SEC;
}
