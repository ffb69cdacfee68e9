/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collecting, checking and comparing plan descriptions. Offsets and sizes are added in 64 bits after each
 * term was bounded, so no sum can wrap. One digest stands for all entries before one when descriptions are
 * compared.
 */
#include "job/plan/description.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "gradsync.pb-c.h"
#include "proto/diagnosis.h"
#include "proto/names.h"

#define INVALID WIRE__CODE__INVALID

static int check_begin(const struct offer *begin, struct refusal *refusal) {
        if (begin->params < 1 || begin->params > LIMIT_PARAMS)
                return refuse(refusal, INVALID, "plan %u has %u parameters; 1 to %u are possible",
                              begin->plan, begin->params, LIMIT_PARAMS);
        if (begin->buckets < 1 || begin->buckets > LIMIT_BUCKETS || begin->buckets > begin->params)
                return refuse(
                        refusal, INVALID,
                        "plan %u has %u buckets for %u parameters; 1 to %u are possible, none of them empty",
                        begin->plan, begin->buckets, begin->params, LIMIT_BUCKETS);
        if (begin->arena_bytes > LIMIT_ARENA || begin->arena_bytes % ARENA_PAGE != 0)
                return refuse(refusal, INVALID,
                              "plan %u: an arena of %" PRIu64
                              " bytes is not possible: it is a multiple of %u and at most %" PRIu64,
                              begin->plan, begin->arena_bytes, ARENA_PAGE, LIMIT_ARENA);
        if (begin->control_bytes != diagnosis_bytes(begin->params))
                return refuse(refusal, INVALID,
                              "plan %u: a control memory of %" PRIu64
                              " bytes is not possible for %u parameters: it has %" PRIu64,
                              begin->plan, begin->control_bytes, begin->params,
                              diagnosis_bytes(begin->params));
        if (begin->reduce < WIRE__REDUCE__AVG || begin->reduce > WIRE__REDUCE__PROD)
                return refuse(refusal, INVALID, "plan %u: unknown reduction %d", begin->plan,
                              (int)begin->reduce);
        return 0;
}

int description_new(const struct offer *begin, struct parameters_home *home, uid_t uid,
                    const struct description *like, struct description **ret, struct refusal *refusal) {
        int r = check_begin(begin, refusal);

        if (r != 0)
                return r;
        struct description *d = calloc(1, sizeof(*d));
        if (d == NULL)
                return -ENOMEM;
        r = charge_take(&d->charge, home->accounts, uid, ACCOUNT_PLANS,
                        sizeof(*d) + begin->buckets * sizeof(struct description_bucket), refusal);
        d->reduce = begin->reduce;
        d->voids = begin->void_on_loss;
        d->arena_bytes = begin->arena_bytes;
        d->control_bytes = begin->control_bytes;
        d->n_params = begin->params;
        d->n_buckets = begin->buckets;
        if (r == 0 && like != NULL && like->n_params == d->n_params && like->params->parent == NULL)
                d->params = parameters_ref(like->params);
        else if (r == 0)
                r = parameters_new(home, uid, d->n_params, &d->params, refusal);
        if (r == 0) {
                d->bucket = calloc(d->n_buckets, sizeof(*d->bucket));
                r = d->bucket != NULL ? 0 : -ENOMEM;
        }
        if (r != 0)
                description_free(d);
        else
                *ret = d;
        return r;
}

struct description *description_free(struct description *d) {
        if (d == NULL)
                return NULL;
        parameters_unref(d->params);
        free(d->order);
        free(d->bucket);
        charge_release(&d->charge);
        free(d);
        return NULL;
}

static int add_param(struct description *d, const struct offer_param *from, struct refusal *refusal) {
        uint32_t index = d->have_params;
        uint64_t elements;

        if (d->have_params == d->n_params)
                return refuse(refusal, INVALID, "more parameters came than the %u announced", d->n_params);
        if (from->name == NULL || !name_valid(from->name))
                return refuse(
                        refusal, INVALID,
                        "parameter %u: its name must be 1 to %u bytes of UTF-8 without control characters",
                        index, LIMIT_NAME);
        if (dtype_size(from->dtype) == 0)
                return refuse(refusal, INVALID, "parameter %u \"%s\": unknown data type %d", index,
                              from->name, (int)from->dtype);
        if (!shape_elements(from->shape, from->dims, &elements) || elements > LIMIT_ARENA)
                return refuse(refusal, INVALID,
                              "parameter %u \"%s\": its shape has a zero or overflowing dimension", index,
                              from->name);
        if (from->bucket >= d->n_buckets)
                return refuse(refusal, INVALID, "parameter %u \"%s\" is in bucket %u of %u", index,
                              from->name, from->bucket, d->n_buckets);
        if (!reduce_valid(d->reduce, from->dtype))
                return refuse(refusal, INVALID, "parameter %u \"%s\": the %s of %s is not defined; use a sum",
                              index, from->name, reduce_name(d->reduce), dtype_name(from->dtype));
        int r = parameters_put(&d->params, index, from, elements, refusal);
        d->have_params += r == 0;
        return r;
}

int description_add_params(struct description *d, const struct offer_param *param, size_t n,
                           struct refusal *refusal) {
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                r = add_param(d, &param[i], refusal);
        return r;
}

/* A bucket in the arena lies after the one before it. */
static int check_arena(const struct description *d, uint32_t index, const struct offer_bucket *from,
                       struct refusal *refusal) {
        if (from->offset % ARENA_PAGE != 0 || from->offset < d->used)
                return refuse(refusal, INVALID,
                              "bucket %u: offset %" PRIu64
                              " is not a multiple of %u behind what comes before it (%" PRIu64 ")",
                              index, from->offset, ARENA_PAGE, d->used);
        if (from->offset >= d->arena_bytes || from->bytes == 0 || from->bytes > d->arena_bytes - from->offset)
                return refuse(refusal, INVALID,
                              "bucket %u: %" PRIu64 " bytes at offset %" PRIu64
                              " do not lie in the arena of %" PRIu64,
                              index, from->bytes, from->offset, d->arena_bytes);
        return 0;
}

static int check_memory(uint32_t index, const struct offer_bucket *from, struct refusal *refusal) {
        if (from->offset % ARENA_ALIGN != 0)
                return refuse(refusal, INVALID,
                              "bucket %u: offset %" PRIu64 " in memory %u is not a multiple of %u", index,
                              from->offset, from->memory, ARENA_ALIGN);
        if (from->bytes == 0 || from->bytes > LIMIT_ARENA || from->offset > LIMIT_ARENA)
                return refuse(refusal, INVALID,
                              "bucket %u: %" PRIu64 " bytes at offset %" PRIu64 " lie in no memory", index,
                              from->bytes, from->offset);
        return 0;
}

static int add_bucket(struct description *d, const struct offer_bucket *from, struct refusal *refusal) {
        uint32_t index = d->have_buckets;

        if (index == d->n_buckets)
                return refuse(refusal, INVALID, "more buckets came than the %u announced", d->n_buckets);
        if (dtype_size(from->dtype) == 0)
                return refuse(refusal, INVALID, "bucket %u: unknown data type %d", index, (int)from->dtype);
        int r = from->memory == 0 ? check_arena(d, index, from, refusal) : check_memory(index, from, refusal);
        if (r != 0)
                return r;
        if (from->bytes % dtype_size(from->dtype) != 0)
                return refuse(refusal, INVALID,
                              "bucket %u: %" PRIu64 " bytes are no whole number of elements of %s", index,
                              from->bytes, dtype_name(from->dtype));
        d->bucket[index] = (struct description_bucket){
                .offset = from->offset,
                .bytes = from->bytes,
                .payload = from->payload,
                .memory = from->memory,
                .dtype = (uint8_t)from->dtype,
        };
        if (from->memory == 0)
                d->used = from->offset + from->bytes;
        else
                d->placed = true;
        d->have_buckets++;
        return 0;
}

int description_add_buckets(struct description *d, const struct offer_bucket *bucket, size_t n,
                            struct refusal *refusal) {
        int r = 0;

        for (size_t i = 0; i < n && r == 0; i++)
                r = add_bucket(d, &bucket[i], refusal);
        return r;
}

struct bucket_sum { /* of a bucket's parameters */
        uint64_t end, payload;
};

static int check_param(struct description *d, uint32_t index, struct bucket_sum *sum,
                       struct refusal *refusal) {
        const struct parameter *param = description_param(d, index);
        struct description_bucket *bucket = &d->bucket[param->bucket];
        uint64_t bytes = param->elements * dtype_size(param->dtype);

        if (param->dtype != bucket->dtype)
                return refuse(refusal, INVALID, "parameter %u \"%s\" is %s but its bucket %u is %s", index,
                              param->name, dtype_name(param->dtype), param->bucket,
                              dtype_name(bucket->dtype));
        bucket->n++;
        sum->end = (sum->end + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN + bytes;
        sum->payload += bytes;
        if (sum->end > bucket->bytes)
                return refuse(refusal, INVALID,
                              "parameter %u \"%s\" does not fit bucket %u of %" PRIu64 " bytes", index,
                              param->name, param->bucket, bucket->bytes);
        return 0;
}

static int check_bucket(struct description *d, uint32_t index, uint64_t payload, struct refusal *refusal) {
        const struct description_bucket *bucket = &d->bucket[index];

        if (bucket->n == 0)
                return refuse(refusal, INVALID, "bucket %u holds no parameter", index);
        if (payload != bucket->payload)
                return refuse(refusal, INVALID,
                              "bucket %u: its payload is said to be %" PRIu64
                              " bytes, its parameters have %" PRIu64,
                              index, bucket->payload, payload);
        d->payload += payload;
        return 0;
}

static int check_layout(struct description *d, struct refusal *refusal) {
        _cleanup_(freep) struct bucket_sum *sum = calloc(d->n_buckets, sizeof(*sum));
        int r = 0;

        if (sum == NULL)
                return -ENOMEM;
        for (uint32_t i = 0; i < d->n_params && r == 0; i++)
                r = check_param(d, i, &sum[description_param(d, i)->bucket], refusal);
        for (uint32_t b = 0; b < d->n_buckets && r == 0; b++)
                r = check_bucket(d, b, sum[b].payload, refusal);
        return r;
}

int description_complete(struct description *d, struct refusal *refusal) {
        if (d->have_params != d->n_params || d->have_buckets != d->n_buckets)
                return refuse(refusal, INVALID,
                              "the plan announced %u parameters and %u buckets, %u and %u came", d->n_params,
                              d->n_buckets, d->have_params, d->have_buckets);
        return check_layout(d, refusal);
}

/* Groups the parameters by bucket, keeping their order: a counting sort. */
int description_settle(struct description *d) {
        uint32_t first = 0;

        d->order = calloc(d->n_params, sizeof(*d->order));
        if (d->order == NULL)
                return -ENOMEM;
        for (uint32_t b = 0; b < d->n_buckets; b++) {
                d->bucket[b].first = first;
                first += d->bucket[b].n;
                d->bucket[b].n = 0;
        }
        for (uint32_t i = 0; i < d->n_params; i++) {
                struct description_bucket *bucket = &d->bucket[description_param(d, i)->bucket];

                d->order[bucket->first + bucket->n++] = i;
        }
        return 0;
}

/* Where the buckets lie must be the same too, unless each member has a place of its own for them. */
static bool equal_layout(const struct description *a, const char *name_a, const struct description *b,
                         const char *name_b, char *text, size_t size) {
        bool anywhere = a->placed || b->placed;

        for (uint32_t i = 0; i < a->n_buckets; i++) {
                const struct description_bucket *left = &a->bucket[i], *right = &b->bucket[i];

                if (left->bytes == right->bytes && (anywhere || left->offset == right->offset))
                        continue;
                snprintf(text, size,
                         "bucket %u has %" PRIu64 " bytes at %" PRIu64 " on %s but %" PRIu64 " at %" PRIu64
                         " on %s: use the same library version",
                         i, right->bytes, right->offset, name_b, left->bytes, left->offset, name_a);
                return false;
        }
        if (anywhere || a->arena_bytes == b->arena_bytes)
                return true;
        snprintf(text, size,
                 "the arena has %" PRIu64 " bytes on %s but %" PRIu64 " on %s: use the same library version",
                 b->arena_bytes, name_b, a->arena_bytes, name_a);
        return false;
}

static bool equal_whole(const struct description *a, const struct description *b) {
        return a->n_params == b->n_params && a->n_buckets == b->n_buckets && a->reduce == b->reduce &&
               a->voids == b->voids;
}

/* The first parameter that differs, among the first `common`; `common`: none does. */
static uint32_t first_difference(const struct description *a, const struct description *b, uint32_t common) {
        uint32_t same = 0, end = common;

        if (parameters_prefix(a->params, common) == parameters_prefix(b->params, common))
                return common;
        while (end - same > 1) {
                uint32_t middle = same + (end - same) / 2;

                if (parameters_prefix(a->params, middle) == parameters_prefix(b->params, middle))
                        same = middle;
                else
                        end = middle;
        }
        return same;
}

bool description_equal(const struct description *a, const char *name_a, const struct description *b,
                       const char *name_b, char *text, size_t size, const char **ret_parameter) {
        uint32_t common = a->n_params < b->n_params ? a->n_params : b->n_params;
        uint32_t index = first_difference(a, b, common);
        struct plan_facts facts_a, facts_b;

        *ret_parameter = NULL;
        if (index == common && equal_whole(a, b))
                return equal_layout(a, name_a, b, name_b, text, size);
        facts_a = description_facts(a, index);
        facts_b = description_facts(b, index);
        if (facts_differ(&facts_a, name_a, &facts_b, name_b, text, size) != NULL)
                *ret_parameter = description_param(index < b->n_params ? b : a, index)->name;
        return false;
}

struct plan_facts description_facts(const struct description *d, uint32_t index) {
        struct plan_facts facts = { .index = index,
                                    .n_params = d->n_params,
                                    .n_buckets = d->n_buckets,
                                    .reduce = d->reduce,
                                    .voids = d->voids,
                                    .placed = d->placed };

        if (index < d->n_params) {
                const struct parameter *param = description_param(d, index);

                memcpy(facts.name, param->name, strlen(param->name) + 1);
                memcpy(facts.shape, param->shape, param->dims * sizeof(*param->shape));
                facts.dtype = param->dtype;
                facts.dims = param->dims;
                facts.bucket = param->bucket;
        } else if (index - d->n_params < d->n_buckets) {
                facts.bytes = d->bucket[index - d->n_params].bytes;
        }
        return facts;
}

uint64_t description_prefix(const struct description *d, uint32_t n) {
        uint64_t digest = parameters_prefix(d->params, n < d->n_params ? n : d->n_params);

        for (uint32_t b = 0; b < d->n_buckets && d->n_params + b < n; b++)
                digest = digest_add(digest, &d->bucket[b].bytes, sizeof(d->bucket[b].bytes));
        return digest;
}

uint64_t description_digest(const struct description *d) {
        uint32_t head[] = { d->reduce, d->n_params, d->n_buckets };

        return digest_add(description_prefix(d, d->n_params + d->n_buckets), head, sizeof(head));
}
