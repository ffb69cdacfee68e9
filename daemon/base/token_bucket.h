/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token bucket limits how often, or for how long, something may be done: tokens come at a steady rate, up
 * to a bound, and whatever is done takes some. The connections of one user, the handshakes of strangers and
 * the requests in line are limited so, because a loop in one program could keep the event thread from the
 * steps of all others. Pure: the caller passes the time, in microseconds, and the rate, which may change.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct token_bucket {  /* zero-initialised: full */
        uint64_t last; /* when tokens were last added, in microseconds */
        double left;   /* tokens that may be taken now; an owner that takes more may make this negative */
};

/* Adds the tokens that have come since the last call, `rate` in each second, up to `most`. Returns the number
 * of tokens. */
double token_bucket_fill(struct token_bucket *bucket, double rate, double most, uint64_t now);
/* Takes a token, if there is one. The bucket holds `rate` tokens, so one second fills it, whatever the
 * rate. */
bool token_bucket_take(struct token_bucket *bucket, uint64_t rate, uint64_t now);
/* Whether a bucket for token_bucket_take() is as full as a new one. */
bool token_bucket_is_full(const struct token_bucket *bucket, uint64_t now);
