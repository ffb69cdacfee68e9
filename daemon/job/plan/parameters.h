/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of a plan, in registration order, as one or more members describe them. Members with equal
 * entries share them: the first member with an entry adds it, and the others are compared with it. A member
 * that describes an entry differently has its own entries from there on. So all members together cost as much
 * as one, they are compared as their chunks come, and one digest stands for all entries before one. They are
 * freed a piece at a time. Loop thread only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/account.h"
#include "base/list.h"
#include "base/loop.h"

/* A parameter as a member describes it. */
struct offer_param {
        const char *name;
        const uint64_t *shape;
        size_t dims;
        uint32_t bucket;
        unsigned dtype;
};

struct parameter {
        const char *name;
        const uint64_t *shape; /* `dims` values */
        uint64_t elements;
        uint64_t hash;   /* of the name, under the home's key */
        uint64_t prefix; /* digest of all entries up to this one */
        uint32_t bucket;
        uint8_t dtype, dims;
};

struct parameters_home { /* of all plans' */
        struct users *accounts;
        struct loop *loop;
        uint64_t key;
        struct list gone; /* to be freed */
        struct loop_deferred freeing;
};

struct parameters_block;

struct parameters {
        struct list link; /* home->gone */
        struct parameters_home *home;
        uid_t uid;
        unsigned references;
        struct parameters *parent; /* has the first `shared` entries; NULL: there are none */
        uint32_t shared;
        uint32_t n, have; /* announced; come so far. Both count those of the parent */
        struct parameter *own;
        uint32_t *slot, slots;           /* numbers of own entries, plus 1, by hash; a power of two */
        struct parameters_block *blocks; /* with names and shapes; the last one comes first */
        struct charge charge;            /* for all but these */
};

int parameters_home_init(struct parameters_home *home, struct users *accounts, struct loop *loop);
void parameters_home_deinit(struct parameters_home *home); /* no reference may be left */

/* 0, with one reference; QUOTA with *refusal; -ENOMEM. */
int parameters_new(struct parameters_home *home, uid_t uid, uint32_t n, struct parameters **ret,
                   struct refusal *refusal);
struct parameters *parameters_ref(struct parameters *parameters);
struct parameters *parameters_unref(struct parameters *parameters); /* NULL is fine, and returned */

/* Entry number `index` is this one, with so many elements: compares it with what is there, or adds it. If
 * it is another one, the reference goes over to other parameters. 0; INVALID if the name is another entry's,
 * or QUOTA, with *refusal; -ENOMEM. */
int parameters_put(struct parameters **parameters, uint32_t index, const struct offer_param *from,
                   uint64_t elements, struct refusal *refusal);

static inline const struct parameter *parameters_at(const struct parameters *parameters, uint32_t index) {
        return index < parameters->shared ? &parameters->parent->own[index]
                                          : &parameters->own[index - parameters->shared];
}

#define DIGEST_NONE UINT64_C(0xcbf29ce484222325) /* of nothing */
/* FNV-1a: adds these bytes to the digest. */
uint64_t digest_add(uint64_t digest, const void *data, size_t size);
/* Digest of the first n entries. */
static inline uint64_t parameters_prefix(const struct parameters *parameters, uint32_t n) {
        return n == 0 ? DIGEST_NONE : parameters_at(parameters, n - 1)->prefix;
}
