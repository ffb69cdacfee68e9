/* SPDX-License-Identifier: Apache-2.0 */
/* A bucket of the open step. One function changes its state, checks that the change is legal and stamps the
 * time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "job/plan/description.h"

enum bucket_state {
        BUCKET_WAITING,     /* for READY of local members */
        BUCKET_REDUCING,    /* with the backend */
        BUCKET_EXCHANGING,  /* only on several nodes: a piece is with the engine, or waits for its turn */
        BUCKET_FANNING_OUT, /* only on several nodes: the members' memory is written to, piece by piece */
        BUCKET_DONE,        /* all members here hold the result */
};

struct bucket {
        enum bucket_state state;
        uint32_t n_ready; /* members here whose READY has come */
        bool used;        /* some member used every parameter of it */
        uint64_t since;   /* clock_now() when it last went on; of the first READY while waiting */
        uint64_t begun;   /* clock_now() when it became REDUCING */
        uint8_t *absent;  /* bit i: absent on all members here that have said so in this step */
        void *room;       /* for the backend's task */
};

/* Those of a plan, in one block (for free()) with all that is needed in its steps, of up to `most` members
 * here; that many bytes, and NULL if there is no memory. */
uint64_t buckets_bytes(const struct description *plan, const struct backend *backend, uint32_t most);
struct bucket *buckets_new(const struct description *plan, const struct backend *backend, uint32_t most);

void bucket_set_state(struct bucket *bucket, enum bucket_state state, uint64_t now);
/* A piece of it has come from the other nodes. */
void bucket_touch(struct bucket *bucket, uint64_t now);
/* Back to WAITING for the next step, from any state. */
void bucket_reset(struct bucket *bucket);
