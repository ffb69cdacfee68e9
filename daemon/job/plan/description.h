/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a member describes it: parameters in registration order, buckets in launch order. The description
 * is collected in chunks, checked for overflow and overlap (in registered memory: by memory.h), and compared
 * with another member's. Nothing in it is believed before it was checked here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "job/plan/parameters.h"
#include "proto/frame.h"
#include "rendezvous/machine/facts.h"

/* A member's description comes in these pieces. */
struct offer {
        uint32_t generation, plan, params, buckets;
        unsigned reduce;
        uint64_t arena_bytes, control_bytes;
        uint64_t timeout; /* us, of the agreement; 0: none */
        bool void_on_loss;
};

struct offer_bucket {
        uint64_t offset, bytes, payload;
        uint32_t memory;
        unsigned dtype;
};

struct description_bucket {
        uint64_t offset, bytes, payload;
        uint32_t memory;   /* the registered one in which `offset` counts; 0: the arena */
        uint32_t first, n; /* its parameters: order[first .. first+n), once it is settled */
        uint8_t dtype;
};

struct description {
        unsigned reduce;
        bool voids;                   /* the end of the generation ends it, if it is not agreed by then */
        uint64_t arena_bytes;         /* 0: all buckets lie in registered memory, or will be refused */
        uint64_t control_bytes;       /* of the memory for the diagnosis pages */
        uint64_t payload;             /* bytes of all parameters */
        uint64_t used;                /* bytes of the arena in front of the next bucket */
        bool placed;                  /* some bucket lies in registered memory */
        uint32_t n_params, n_buckets; /* announced; the next two have come so far */
        uint32_t have_params, have_buckets;
        struct parameters *params; /* it may have more than have_params, of other members */
        struct description_bucket *bucket;
        uint32_t *order; /* parameter indices grouped by bucket, in registration order within one; NULL: it
                                 is not settled */
        struct charge charge; /* for all but the parameters */
};

static inline const struct parameter *description_param(const struct description *d, uint32_t index) {
        return parameters_at(d->params, index);
}

/* `like` is another member's of the same plan, with which it shares what is the same; NULL: there is none. 0;
 * INVALID or QUOTA with *refusal; -ENOMEM. */
int description_new(const struct offer *begin, struct parameters_home *home, uid_t uid,
                    const struct description *like, struct description **ret, struct refusal *refusal);
struct description *description_free(struct description *description);

/* One chunk. INVALID with *refusal names the parameter or bucket. */
int description_add_params(struct description *d, const struct offer_param *param, size_t n,
                           struct refusal *refusal);
int description_add_buckets(struct description *d, const struct offer_bucket *bucket, size_t n,
                            struct refusal *refusal);
/* All chunks are there: checks the layout as a whole. */
int description_complete(struct description *d, struct refusal *refusal);
/* It is the plan's: finds out which parameters each bucket has. 0 or -ENOMEM. */
int description_settle(struct description *d);

/* Whether b is the same plan as a; where buckets lie is compared if all are in arenas. If not, `text` names
 * the first difference; `name_a` and `name_b` ("rank 0 (pid 7)") are the members that gave them.
 * *ret_parameter is the name of the first parameter that differs, or NULL. */
bool description_equal(const struct description *a, const char *name_a, const struct description *b,
                       const char *name_b, char *text, size_t size, const char **ret_parameter);
/* The facts about the plan as far as that entry that other nodes get; without the digest of the entries
 * before it, and without the member that described it. */
struct plan_facts description_facts(const struct description *d, uint32_t index);
/* Digest of its first n entries. */
uint64_t description_prefix(const struct description *d, uint32_t n);
/* The same number for the same plan, on any node; where buckets lie is no part of it. */
uint64_t description_digest(const struct description *d);
