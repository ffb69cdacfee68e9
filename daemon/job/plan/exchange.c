/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/exchange.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job/data.h"
#include "proto/names.h"

static bool is_sum(const struct exchange *exchange) {
        return exchange->reduce == WIRE__REDUCE__AVG || exchange->reduce == WIRE__REDUCE__SUM;
}

static struct trailer trailer_shape(const struct exchange *exchange, const struct description_bucket *place,
                                    uint32_t world) {
        return (struct trailer){ .dtype = place->dtype,
                                 .reduce = exchange->reduce,
                                 .params = is_sum(exchange) ? place->n : 0,
                                 .world = world };
}

/* What goes between nodes of it in a world of that size. */
static uint64_t elements_of(const struct exchange *exchange, const struct description_bucket *place,
                            uint32_t world) {
        struct trailer trailer = trailer_shape(exchange, place, world);

        return place->bytes / dtype_size(place->dtype) + trailer_elements(&trailer);
}

static uint64_t largest(const struct exchange *exchange, const struct description *plan, unsigned dtype) {
        uint64_t most = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                const struct description_bucket *place = &plan->bucket[b];
                uint64_t bytes = elements_of(exchange, place, exchange->most) * dtype_size(place->dtype);

                if ((dtype == 0 || place->dtype == dtype) && bytes > most)
                        most = bytes;
        }
        return (most + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* Slots, the place for what nobody wants, then the neutral elements. How many bytes that is. */
static uint64_t lay_out(struct exchange *exchange, const struct description *plan) {
        exchange->slot_bytes = largest(exchange, plan, 0);
        uint64_t bytes = (exchange->n_slots + 1) * exchange->slot_bytes;
        for (unsigned dtype = 1; dtype < EXCHANGE_DTYPES; dtype++) {
                exchange->neutral[dtype] = bytes;
                if (!is_sum(exchange))
                        bytes += largest(exchange, plan, dtype);
        }
        return is_sum(exchange) ? bytes + exchange->slot_bytes : bytes;
}

static int exchange_prepare(struct exchange *exchange, struct job *job, const struct description *plan,
                            struct refusal *refusal) {
        size_t notes = (size_t)exchange->n_slots * exchange->most;
        uint64_t bytes = sizeof(*exchange) + (notes + exchange->most) * (sizeof(double) + sizeof(uint64_t));
        int r = shared_init(&exchange->staging, job, job->table->config.backend, lay_out(exchange, plan),
                            refusal);

        if (r == 0)
                r = charge_take(&exchange->charge, job->table->config.accounts, job->uid, ACCOUNT_BYTES,
                                bytes, refusal);
        if (r != 0)
                return r;
        exchange->sums = calloc(notes, sizeof(*exchange->sums));
        exchange->counts = calloc(notes, sizeof(*exchange->counts));
        exchange->rank_sums = calloc(exchange->most, sizeof(*exchange->rank_sums));
        exchange->rank_counts = calloc(exchange->most, sizeof(*exchange->rank_counts));
        return exchange->sums != NULL && exchange->counts != NULL && exchange->rank_sums != NULL &&
                               exchange->rank_counts != NULL
                       ? 0
                       : -ENOMEM;
}

int exchange_new(struct job *job, const struct description *plan, struct exchange **ret,
                 struct refusal *refusal) {
        struct exchange *exchange = calloc(1, sizeof(*exchange));

        if (exchange == NULL)
                return -ENOMEM;
        list_init(&exchange->link);
        exchange->most = job->max_world;
        exchange->digest = description_digest(plan);
        exchange->reduce = plan->reduce;
        exchange->n_slots = plan->n_buckets < EXCHANGE_SLOTS ? plan->n_buckets : EXCHANGE_SLOTS;
        int r = exchange_prepare(exchange, job, plan, refusal);
        if (r == 0)
                *ret = exchange;
        else
                exchange_free(exchange);
        return r;
}

void exchange_fill(struct exchange *exchange, const struct description *plan) {
        for (unsigned dtype = 1; dtype < EXCHANGE_DTYPES && !is_sum(exchange) && !exchange->filled; dtype++)
                shared_fill_neutral(&exchange->staging, exchange->neutral[dtype], dtype, exchange->reduce,
                                    largest(exchange, plan, dtype) / dtype_size(dtype));
        exchange->filled = true;
}

struct exchange *exchange_free(struct exchange *exchange) {
        if (exchange == NULL)
                return NULL;
        list_remove(&exchange->link);
        shared_deinit(&exchange->staging);
        charge_release(&exchange->charge);
        free(exchange->sums);
        free(exchange->counts);
        free(exchange->rank_sums);
        free(exchange->rank_counts);
        free(exchange);
        return NULL;
}

void exchange_reset(struct exchange *exchange) {
        exchange->next = 0;
        exchange->asked = exchange->compared = false;
}

static uint64_t slot_offset(const struct exchange *exchange, uint32_t bucket) {
        return bucket % exchange->n_slots * exchange->slot_bytes;
}

struct backend_range exchange_slot(const struct exchange *exchange, uint32_t bucket) {
        return shared_range(&exchange->staging, slot_offset(exchange, bucket));
}

struct engine_piece exchange_piece(const struct exchange *exchange, const struct description *plan,
                                   uint32_t bucket, uint32_t world, bool idle) {
        const struct description_bucket *place = &plan->bucket[bucket];
        uint64_t slot = slot_offset(exchange, bucket);

        return (struct engine_piece){
                .memory = exchange->staging.id,
                .input = idle ? exchange->neutral[place->dtype] : slot,
                .output = idle ? exchange->n_slots * exchange->slot_bytes : slot,
                .elements = elements_of(exchange, place, world),
                .dtype = place->dtype,
                .reduce = shared_reduce(exchange->reduce),
        };
}

uint64_t exchange_elements(const struct exchange *exchange, const struct description *plan, uint32_t world) {
        uint64_t elements = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++)
                elements += elements_of(exchange, &plan->bucket[b], world);
        return elements;
}

static struct trailer trailer_of(const struct exchange *exchange, const struct description *plan,
                                 uint32_t bucket, uint32_t world) {
        const struct description_bucket *place = &plan->bucket[bucket];
        struct trailer trailer = trailer_shape(exchange, place, world);

        assert(world <= exchange->most);
        trailer.at = shared_address(&exchange->staging, slot_offset(exchange, bucket) + place->bytes);
        return trailer;
}

void exchange_keep(struct exchange *exchange, uint32_t bucket, const struct backend_result *read) {
        size_t first = (size_t)(bucket % exchange->n_slots) * exchange->most;

        memcpy(exchange->sums + first, read->input_sum_squares, read->n_inputs * sizeof(*exchange->sums));
        memcpy(exchange->counts + first, read->input_nonfinite, read->n_inputs * sizeof(*exchange->counts));
}

void exchange_tell(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint32_t bucket, const uint8_t *absent) {
        struct trailer trailer = trailer_of(exchange, plan, bucket, job->world);
        size_t first = (size_t)(bucket % exchange->n_slots) * exchange->most;

        trailer_clear(&trailer);
        trailer_put_used(&trailer, absent);
        for (uint32_t local = 0; local < job->n_local && trailer_has_ranks(&trailer); local++)
                trailer_put_rank(&trailer, job->local[local]->rank, exchange->sums[first + local],
                                 exchange->counts[first + local]);
}

void exchange_hear(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint32_t bucket, uint8_t *absent) {
        struct trailer trailer = trailer_of(exchange, plan, bucket, job->world);

        if (absent != NULL)
                trailer_get_used(&trailer, absent);
        for (uint32_t rank = 0; rank < job->world && trailer_has_ranks(&trailer); rank++)
                trailer_get_rank(&trailer, rank, &exchange->rank_sums[rank], &exchange->rank_counts[rank]);
}

struct backend_result exchange_result(const struct exchange *exchange, uint32_t bucket, uint32_t n_local,
                                      const struct backend_result *written) {
        size_t first = (size_t)(bucket % exchange->n_slots) * exchange->most;

        return (struct backend_result){ .id = written->id,
                                        .n_inputs = n_local,
                                        .sum_squares = written->sum_squares,
                                        .input_sum_squares = exchange->sums + first,
                                        .input_nonfinite = exchange->counts + first };
}
