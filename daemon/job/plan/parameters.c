/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names are looked up in a hash table that a client cannot make slow by its choice of names: the hash is a
 * polynomial over a prime field, at a secret point, so two given names have the same hash with a probability
 * of at most their length over 2^61 (Carter and Wegman, "Universal Classes of Hash Functions", 1979).
 */
#include "job/plan/parameters.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "gradsync.pb-c.h"
#include "proto/frame.h"

#define BLOCK 16384u /* bytes of names and shapes, or as many as one entry has */
#define SLICE 64u    /* blocks that are freed in one pass of the loop */
#define PRIME ((UINT64_C(1) << 61) - 1)
#define WORD 7u /* bytes of a name at a time: less than the prime */

struct parameters_block {
        struct parameters_block *next;
        struct charge charge;
        size_t used, size;
        _Alignas(uint64_t) unsigned char data[];
};

_Static_assert(BLOCK >= LIMIT_NAME + 1 + LIMIT_DIMS * sizeof(uint64_t) + sizeof(struct parameters_block),
               "a block holds any entry");

/* ---- freeing ---- */

static unsigned parameters_free_blocks(struct parameters *p, unsigned most) {
        unsigned n = 0;

        for (; p->blocks != NULL && n < most; n++) {
                struct parameters_block *block = p->blocks;

                p->blocks = block->next;
                charge_release(&block->charge);
                free(block);
        }
        return n;
}

/* Without blocks. */
static void parameters_free_rest(struct parameters *p) {
        list_remove(&p->link);
        parameters_unref(p->parent);
        charge_release(&p->charge);
        free(p->own);
        free(p->slot);
        free(p);
}

static void parameters_free_some(void *data) {
        struct parameters_home *home = data;
        unsigned left = SLICE;

        while (left > 0 && !list_empty(&home->gone)) {
                struct parameters *p = list_entry(home->gone.next, struct parameters, link);

                left -= parameters_free_blocks(p, left);
                if (p->blocks == NULL && left > 0) {
                        left--;
                        parameters_free_rest(p);
                }
        }
        if (!list_empty(&home->gone))
                loop_defer(home->loop, &home->freeing);
}

int parameters_home_init(struct parameters_home *home, struct users *accounts, struct loop *loop) {
        *home = (struct parameters_home){ .accounts = accounts,
                                          .loop = loop,
                                          .freeing = { .fn = parameters_free_some, .data = home } };
        list_init(&home->gone);
        if (getrandom(&home->key, sizeof(home->key), 0) != sizeof(home->key))
                return -errno;
        home->key = home->key % (PRIME - 1) + 1;
        return 0;
}

void parameters_home_deinit(struct parameters_home *home) {
        while (!list_empty(&home->gone))
                parameters_free_some(home);
        loop_defer_cancel(home->loop, &home->freeing);
}

struct parameters *parameters_ref(struct parameters *parameters) {
        parameters->references++;
        return parameters;
}

/* Parameters with few blocks are freed at once. */
struct parameters *parameters_unref(struct parameters *p) {
        if (p == NULL || --p->references > 0)
                return NULL;
        parameters_free_blocks(p, 1);
        if (p->blocks == NULL) {
                parameters_free_rest(p);
        } else {
                list_append(&p->home->gone, &p->link);
                loop_defer(p->home->loop, &p->home->freeing);
        }
        return NULL;
}

/* ---- making ---- */

/* They will have n entries. */
static int parameters_make(struct parameters *p, uint32_t n, struct refusal *refusal) {
        p->slots = 2;
        while (p->slots < 2 * n)
                p->slots *= 2;
        /* with what one description takes to order them */
        uint64_t cost = sizeof(*p) + n * (sizeof(*p->own) + sizeof(uint32_t)) + p->slots * sizeof(*p->slot);
        int r = charge_take(&p->charge, p->home->accounts, p->uid, ACCOUNT_PLANS, cost, refusal);

        if (r != 0)
                return r;
        p->own = calloc(n, sizeof(*p->own));
        p->slot = calloc(p->slots, sizeof(*p->slot));
        return p->own != NULL && p->slot != NULL ? 0 : -ENOMEM;
}

int parameters_new(struct parameters_home *home, uid_t uid, uint32_t n, struct parameters **ret,
                   struct refusal *refusal) {
        struct parameters *p = calloc(1, sizeof(*p));

        if (p == NULL)
                return -ENOMEM;
        *p = (struct parameters){ .home = home, .uid = uid, .references = 1, .n = n };
        list_init(&p->link);
        int r = parameters_make(p, n, refusal);
        if (r != 0)
                parameters_unref(p);
        else
                *ret = p;
        return r;
}

/* ---- names ---- */

static uint64_t name_step(uint64_t hash, uint64_t word, uint64_t key) {
        __extension__ typedef unsigned __int128 wide;
        wide product = (wide)(hash + word) * key;
        uint64_t sum = (uint64_t)(product & PRIME) + (uint64_t)(product >> 61);

        return sum % PRIME;
}

static uint64_t name_hash(uint64_t key, const char *name, size_t bytes) {
        uint64_t hash = bytes;

        for (size_t at = 0; at < bytes; at += WORD) {
                uint64_t word = 0;

                memcpy(&word, name + at, bytes - at < WORD ? bytes - at : WORD);
                hash = name_step(hash, word, key);
        }
        return hash;
}

/* The slot of that name among their own, or an empty one. */
static uint32_t *parameters_slot(const struct parameters *p, const char *name, uint64_t hash) {
        uint32_t at = (uint32_t)hash & (p->slots - 1);

        while (p->slot[at] != 0) {
                const struct parameter *entry = &p->own[p->slot[at] - 1];

                if (entry->hash == hash && strcmp(entry->name, name) == 0)
                        break;
                at = (at + 1) & (p->slots - 1);
        }
        return &p->slot[at];
}

/* ---- entries ---- */

uint64_t digest_add(uint64_t digest, const void *data, size_t size) {
        const unsigned char *byte = data;

        for (size_t i = 0; i < size; i++)
                digest = (digest ^ byte[i]) * UINT64_C(0x100000001b3);
        return digest;
}

static uint64_t parameter_digest(uint64_t before, const struct parameter *entry, size_t name_bytes) {
        uint32_t kind[] = { entry->bucket, entry->dtype, entry->dims };
        uint64_t digest = digest_add(before, entry->name, name_bytes);

        digest = digest_add(digest, kind, sizeof(kind));
        return digest_add(digest, entry->shape, entry->dims * sizeof(*entry->shape));
}

static bool parameter_is(const struct parameter *entry, const struct offer_param *from) {
        return strcmp(entry->name, from->name) == 0 && entry->dtype == from->dtype &&
               entry->dims == from->dims && entry->bucket == from->bucket &&
               (from->dims == 0 || memcmp(entry->shape, from->shape, from->dims * sizeof(uint64_t)) == 0);
}

/* Room for so many bytes, in a multiple of the alignment. */
static int parameters_room(struct parameters *p, size_t bytes, void **ret, struct refusal *refusal) {
        struct parameters_block *block = p->blocks;

        bytes = (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
        if (block == NULL || bytes > block->size - block->used) {
                struct charge charge = { 0 };
                /* no larger than the entries that are still to come can be */
                uint64_t most = (uint64_t)(p->n - p->have) * (LIMIT_NAME + 8 + LIMIT_DIMS * sizeof(uint64_t));
                size_t size = most < BLOCK - sizeof(*block) ? (size_t)most : BLOCK - sizeof(*block);
                int r = charge_take(&charge, p->home->accounts, p->uid, ACCOUNT_PLANS, sizeof(*block) + size,
                                    refusal);

                if (r != 0)
                        return r;
                block = malloc(sizeof(*block) + size);
                if (block == NULL) {
                        charge_release(&charge);
                        return -ENOMEM;
                }
                *block = (struct parameters_block){ .next = p->blocks, .charge = charge, .size = size };
                p->blocks = block;
        }
        *ret = block->data + block->used;
        block->used += bytes;
        return 0;
}

static int parameters_add(struct parameters *p, const struct offer_param *from, uint64_t elements,
                          struct refusal *refusal) {
        size_t name_bytes = strlen(from->name) + 1, shape_bytes = from->dims * sizeof(uint64_t);
        uint64_t hash = name_hash(p->home->key, from->name, name_bytes - 1);
        uint32_t *slot = parameters_slot(p, from->name, hash);
        uint32_t before = p->parent != NULL ? *parameters_slot(p->parent, from->name, hash) : 0;
        struct parameter *entry = &p->own[p->have - p->shared];
        void *room;

        assert(p->have < p->n);
        if (*slot != 0 || (before > 0 && before <= p->shared))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "two parameters are called \"%s\"; give each its own name", from->name);
        int r = parameters_room(p, shape_bytes + name_bytes, &room, refusal);
        if (r != 0)
                return r;
        if (shape_bytes > 0)
                memcpy(room, from->shape, shape_bytes);
        memcpy((char *)room + shape_bytes, from->name, name_bytes);
        *entry = (struct parameter){ .name = (char *)room + shape_bytes,
                                     .shape = room,
                                     .elements = elements,
                                     .hash = hash,
                                     .bucket = from->bucket,
                                     .dtype = (uint8_t)from->dtype,
                                     .dims = (uint8_t)from->dims };
        entry->prefix = parameter_digest(parameters_prefix(p, p->have), entry, name_bytes);
        p->have++;
        *slot = p->have - p->shared;
        return 0;
}

int parameters_put(struct parameters **parameters, uint32_t index, const struct offer_param *from,
                   uint64_t elements, struct refusal *refusal) {
        struct parameters *p = *parameters, *other;

        if (index < p->have && parameter_is(parameters_at(p, index), from))
                return 0;
        if (index < p->have) {
                assert(p->parent == NULL); /* entries after a parent's have one user, which only appends */
                int r = parameters_new(p->home, p->uid, p->n - index, &other, refusal);
                if (r != 0)
                        return r;
                other->parent = p; /* with the reference */
                other->shared = other->have = index;
                other->n = p->n;
                *parameters = p = other;
        }
        return parameters_add(p, from, elements, refusal);
}
