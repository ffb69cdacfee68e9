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

/* Counts the elements of a whole bucket that go between nodes, trailer included, in a world of that size. */
static uint64_t elements_of(const struct exchange *exchange, const struct description_bucket *place,
                            uint32_t world) {
        struct trailer trailer = trailer_shape(exchange, place, world);

        return place->bytes / dtype_size(place->dtype) + trailer_elements(&trailer);
}

/* ---- pieces ---- */

/* The size of each piece of a bucket except the last one. */
static uint64_t piece_size(const struct exchange *exchange, const struct description_bucket *place) {
        uint64_t n = (place->bytes + exchange->piece_bytes - 1) / exchange->piece_bytes;
        uint64_t each = n > 1 ? (place->bytes + n - 1) / n : place->bytes;

        return (each + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static uint32_t piece_count(const struct exchange *exchange, const struct description_bucket *place) {
        uint64_t each = piece_size(exchange, place);

        return each == 0 ? 1 : (uint32_t)((place->bytes + each - 1) / each);
}

static uint32_t count_pieces(const struct exchange *exchange, const struct description *plan) {
        uint32_t n = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++)
                n += piece_count(exchange, &plan->bucket[b]);
        return n;
}

struct bucket_piece exchange_piece(const struct exchange *exchange, const struct description *plan,
                                   uint32_t number) {
        uint32_t low = 0, high = plan->n_buckets; /* the bucket is one of these */

        assert(number < exchange->n_pieces);
        while (high - low > 1) {
                uint32_t middle = low + (high - low) / 2;

                if (exchange->first[middle] <= number)
                        low = middle;
                else
                        high = middle;
        }
        const struct description_bucket *place = &plan->bucket[low];
        uint64_t each = piece_size(exchange, place), offset = each * (number - exchange->first[low]);
        bool last = number + 1 == exchange->first[low + 1];
        uint64_t bytes = last ? place->bytes - offset : each;

        return (struct bucket_piece){ .number = number,
                                      .bucket = low,
                                      .offset = offset,
                                      .elements = bytes / dtype_size(place->dtype),
                                      .last = last };
}

/* ---- memory ---- */

/* The most that goes between nodes at once, of buckets of that type; 0: of any. */
static uint64_t largest(const struct exchange *exchange, const struct description *plan, unsigned dtype) {
        uint64_t most = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                const struct description_bucket *place = &plan->bucket[b];
                struct trailer trailer = trailer_shape(exchange, place, exchange->most);
                uint64_t bytes =
                        piece_size(exchange, place) + trailer_elements(&trailer) * dtype_size(place->dtype);

                if ((dtype == 0 || place->dtype == dtype) && bytes > most)
                        most = bytes;
        }
        return (most + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* Lays out the slots, the scratch slot, then the neutral elements. Returns how many bytes that takes. */
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

/* Where there are neutral elements other than zeros. */
static unsigned list_neutral(const struct exchange *exchange, const struct description *plan,
                             struct memory_fill ret[EXCHANGE_DTYPES]) {
        unsigned n = 0;

        for (unsigned dtype = 1; dtype < EXCHANGE_DTYPES && !is_sum(exchange); dtype++)
                ret[n++] = shared_neutral(exchange->neutral[dtype], dtype, exchange->reduce,
                                          largest(exchange, plan, dtype) / dtype_size(dtype));
        return n;
}

/* The longest trailer of a bucket. */
static uint64_t longest_tail(const struct exchange *exchange, const struct description *plan) {
        uint64_t most = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                struct trailer trailer = trailer_shape(exchange, &plan->bucket[b], exchange->most);
                uint64_t bytes = trailer_elements(&trailer) * dtype_size(plan->bucket[b].dtype);

                if (bytes > most)
                        most = bytes;
        }
        return (most + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* For the largest task that a slot is for. */
static size_t slot_room(const struct exchange *exchange, const struct job *job,
                        const struct description *plan) {
        const struct backend *backend = job->table->config.backend;
        uint32_t members = exchange->most < LIMIT_LOCAL ? exchange->most : LIMIT_LOCAL;
        size_t most = 0;

        for (uint32_t b = 0; b < plan->n_buckets; b++) {
                const struct description_bucket *place = &plan->bucket[b];
                size_t bytes =
                        backend->compute->room(backend, &(struct backend_task){
                                                                .dtype = place->dtype,
                                                                .elements = piece_size(exchange, place) /
                                                                            dtype_size(place->dtype),
                                                                .n_inputs = members,
                                                                .n_outputs = members });

                if (bytes > most)
                        most = bytes;
        }
        return (most + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
}

/* Gives out the block from its start, or counts how much that is. */
struct cut {
        unsigned char *block; /* NULL: only counts */
        size_t bytes;
};

static void *cut_next(struct cut *cut, size_t bytes) {
        void *part = cut->block != NULL && bytes > 0 ? cut->block + cut->bytes : NULL;

        cut->bytes += (bytes + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
        return part;
}

static struct exchange_sums cut_sums(struct cut *cut, uint32_t n) {
        return (struct exchange_sums){ .squares = cut_next(cut, n * sizeof(double)),
                                       .nonfinite = cut_next(cut, n * sizeof(uint64_t)) };
}

static size_t cut_block(struct exchange *exchange, const struct description *plan, size_t room,
                        unsigned char *block) {
        struct cut cut = { .block = block };

        for (uint32_t i = 0; i < exchange->n_slots; i++) {
                exchange->slot[i].room = cut_next(&cut, room);
                exchange->slot[i].read = cut_sums(&cut, exchange->most);
        }
        exchange->given = cut_sums(&cut, exchange->most);
        exchange->taken = cut_sums(&cut, exchange->most);
        exchange->rank_sums = cut_next(&cut, exchange->most * sizeof(double));
        exchange->rank_counts = cut_next(&cut, exchange->most * sizeof(uint64_t));
        exchange->first = cut_next(&cut, (plan->n_buckets + (size_t)1) * sizeof(uint32_t));
        return cut.bytes;
}

static void number_pieces(struct exchange *exchange, const struct description *plan) {
        for (uint32_t b = 0; b < plan->n_buckets; b++)
                exchange->first[b + 1] = exchange->first[b] + piece_count(exchange, &plan->bucket[b]);
}

static int exchange_stage(struct exchange *exchange, struct job *job, const struct description *plan,
                          uint32_t ordinal, holding_done_fn late, struct refusal *refusal) {
        struct memory_fill fills[EXCHANGE_DTYPES];
        struct memory_request what = { .bytes = lay_out(exchange, plan),
                                       .fills = fills,
                                       .companion = exchange->n_slots * exchange->tail_bytes };

        what.n_fills = list_neutral(exchange, plan, fills);
        return shared_init(&exchange->staging, job, job->table->config.backend, &what, ordinal, late,
                           refusal);
}

static int exchange_prepare(struct exchange *exchange, struct job *job, const struct description *plan,
                            struct refusal *refusal) {
        size_t room = slot_room(exchange, job, plan), bytes;

        exchange->tail_bytes = longest_tail(exchange, plan);
        bytes = cut_block(exchange, plan, room, NULL);
        int r = charge_take(&exchange->charge, job->table->config.accounts, job->uid, ACCOUNT_OWN,
                            sizeof(*exchange) + bytes, refusal);
        if (r != 0)
                return r;
        exchange->block = calloc(1, bytes);
        if (exchange->block == NULL)
                return -ENOMEM;
        cut_block(exchange, plan, room, exchange->block);
        number_pieces(exchange, plan);
        return 0;
}

static uint64_t piece_most(const struct job *job) {
        const struct jobs_config *config = &job->table->config;
        struct backend_gpu gpu;

        if (config->piece_bytes > 0)
                return config->piece_bytes;
        return config->backend->ops->gpu(config->backend, &gpu) ? EXCHANGE_PIECE_GPU : EXCHANGE_PIECE;
}

/* The engine can do it. */
static int exchange_check(const struct exchange *exchange, const struct job *job,
                          const struct description *plan, struct refusal *refusal) {
        const struct engine *engine = job->table->config.engine;

        for (uint32_t b = 0; b < plan->n_buckets && engine->ops->can != NULL; b++)
                if (!engine->ops->can(engine, plan->bucket[b].dtype, shared_reduce(exchange->reduce)))
                        return refuse(refusal, WIRE__CODE__UNSUPPORTED,
                                      "job '%s': between GPUs of several daemons the %s of %s cannot be "
                                      "computed: NCCL hides values that are no numbers; reduce integers, or "
                                      "keep the job on one daemon",
                                      job->name, reduce_name(exchange->reduce),
                                      dtype_name(plan->bucket[b].dtype));
        return 0;
}

int exchange_new(struct job *job, const struct description *plan, uint32_t ordinal, holding_done_fn late,
                 struct exchange **ret, struct refusal *refusal) {
        struct exchange *exchange = calloc(1, sizeof(*exchange));
        int r;

        if (exchange == NULL)
                return -ENOMEM;
        list_init(&exchange->link);
        exchange->most = job->max_world;
        exchange->digest = description_digest(plan);
        exchange->reduce = plan->reduce;
        exchange->piece_bytes = piece_most(job);
        exchange->n_pieces = count_pieces(exchange, plan);
        exchange->n_slots = exchange->n_pieces < EXCHANGE_SLOTS ? exchange->n_pieces : EXCHANGE_SLOTS;
        r = exchange_check(exchange, job, plan, refusal);
        if (r == 0)
                r = exchange_prepare(exchange, job, plan, refusal);
        if (r == 0)
                r = exchange_stage(exchange, job, plan, ordinal, late, refusal);
        if (r == 0)
                *ret = exchange;
        else
                exchange_free(exchange);
        return r;
}

struct exchange *exchange_free(struct exchange *exchange) {
        if (exchange == NULL)
                return NULL;
        list_remove(&exchange->link);
        shared_deinit(&exchange->staging);
        charge_release(&exchange->charge);
        free(exchange->block);
        free(exchange);
        return NULL;
}

void slot_set_state(struct exchange_slot *slot, enum slot_state state) {
        assert(state == SLOT_FREE || state == slot->state + 1 ||
               (state == SLOT_FANNING_OUT && slot->state == SLOT_FREE)); /* there was nothing to read */
        slot->state = state;
}

void exchange_reset(struct exchange *exchange) {
        exchange->started = exchange->offered = exchange->free = 0;
        exchange->asked = exchange->compared = false;
        for (uint32_t i = 0; i < exchange->n_slots; i++)
                slot_set_state(&exchange->slot[i], SLOT_FREE);
}

/* ---- slots ---- */

static uint64_t slot_offset(const struct exchange *exchange, uint32_t piece) {
        return piece % exchange->n_slots * exchange->slot_bytes;
}

static unsigned char *slot_tail(const struct exchange *exchange, uint32_t piece) {
        return shared_companion(&exchange->staging) + piece % exchange->n_slots * exchange->tail_bytes;
}

struct exchange_slot *exchange_slot(struct exchange *exchange, uint32_t piece) {
        return &exchange->slot[piece % exchange->n_slots];
}

struct backend_range exchange_range(const struct exchange *exchange, uint32_t piece) {
        return shared_range(&exchange->staging, slot_offset(exchange, piece));
}

struct engine_piece exchange_payload(const struct exchange *exchange, const struct description *plan,
                                     uint32_t number, uint32_t world, bool idle) {
        struct bucket_piece piece = exchange_piece(exchange, plan, number);
        const struct description_bucket *place = &plan->bucket[piece.bucket];
        struct trailer trailer = trailer_shape(exchange, place, world);
        uint64_t slot = slot_offset(exchange, number), tail = piece.last ? trailer_elements(&trailer) : 0;
        bool has_tail = tail > 0 && !idle;

        return (struct engine_piece){
                .memory = exchange->staging.id,
                .input = idle ? exchange->neutral[place->dtype] : slot,
                .output = idle ? exchange->n_slots * exchange->slot_bytes : slot,
                .elements = piece.elements + tail,
                .dtype = place->dtype,
                .reduce = shared_reduce(exchange->reduce),
                .tail = has_tail ? slot_tail(exchange, number) : NULL,
                .tail_bytes = has_tail ? (uint32_t)(tail * dtype_size(place->dtype)) : 0,
        };
}

uint64_t exchange_shape(const struct exchange *exchange, const struct description *plan, uint32_t world) {
        uint64_t elements = 0, cuts = exchange->n_pieces - plan->n_buckets;

        for (uint32_t b = 0; b < plan->n_buckets; b++)
                elements += elements_of(exchange, &plan->bucket[b], world);
        return elements ^ cuts * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- the open step ---- */

static struct trailer trailer_of(const struct exchange *exchange, const struct description *plan,
                                 const struct bucket_piece *piece, uint32_t world) {
        const struct description_bucket *place = &plan->bucket[piece->bucket];
        struct trailer trailer = trailer_shape(exchange, place, world);

        assert(world <= exchange->most);
        trailer.at = slot_tail(exchange, piece->number);
        return trailer;
}

/* Adds the sums of the next piece of a bucket, or begins with those of the first one. The pieces are added in
 * their order, so that all members get the same bits. */
static void sums_add(struct exchange_sums *to, const struct exchange_sums *from, uint32_t n, bool first) {
        for (uint32_t i = 0; i < n; i++) {
                to->squares[i] = first ? from->squares[i] : to->squares[i] + from->squares[i];
                to->nonfinite[i] = first ? from->nonfinite[i] : to->nonfinite[i] + from->nonfinite[i];
        }
}

bool exchange_may_start(const struct exchange *exchange) {
        return exchange_has_staging(exchange) && exchange->started < exchange->n_pieces &&
               exchange->started - exchange->free < exchange->n_slots;
}

void exchange_start(struct exchange *exchange) {
        slot_set_state(exchange_slot(exchange, exchange->started++), SLOT_REDUCING);
}

void exchange_keep(struct exchange *exchange, uint32_t piece, const struct backend_result *read) {
        struct exchange_slot *slot = exchange_slot(exchange, piece);

        memcpy(slot->read.squares, read->input_sum_squares, read->n_inputs * sizeof(double));
        memcpy(slot->read.nonfinite, read->input_nonfinite, read->n_inputs * sizeof(uint64_t));
        slot_set_state(slot, SLOT_GIVEN);
}

void exchange_give(struct exchange *exchange, const struct job *job, const struct description *plan,
                   const uint8_t *absent) {
        struct bucket_piece piece = exchange_piece(exchange, plan, exchange->offered++);
        struct trailer trailer;

        if (job->n_local == 0)
                return;
        sums_add(&exchange->given, &exchange_slot(exchange, piece.number)->read, job->n_local,
                 piece.offset == 0);
        if (!piece.last)
                return;
        trailer = trailer_of(exchange, plan, &piece, job->world);
        trailer_clear(&trailer);
        trailer_put_used(&trailer, absent);
        for (uint32_t local = 0; local < job->n_local && trailer_has_ranks(&trailer); local++)
                trailer_put_rank(&trailer, job->local[local]->rank, exchange->given.squares[local],
                                 exchange->given.nonfinite[local]);
}

static void exchange_hear(struct exchange *exchange, const struct job *job, const struct trailer *trailer,
                          uint8_t *absent) {
        if (absent != NULL)
                trailer_get_used(trailer, absent);
        for (uint32_t rank = 0; rank < job->world && trailer_has_ranks(trailer); rank++)
                trailer_get_rank(trailer, rank, &exchange->rank_sums[rank], &exchange->rank_counts[rank]);
}

bool exchange_take(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint8_t *absent, struct backend_result *ret) {
        struct bucket_piece piece = exchange_piece(exchange, plan, exchange->free);
        struct exchange_slot *slot = exchange_slot(exchange, piece.number);
        struct trailer trailer = trailer_of(exchange, plan, &piece, job->world);
        bool first = piece.offset == 0;

        sums_add(&exchange->taken, &slot->read, job->n_local, first);
        exchange->written = first ? slot->written : exchange->written + slot->written;
        slot_set_state(slot, SLOT_SETTLED);
        if (piece.last && job->n_local > 0)
                exchange_hear(exchange, job, &trailer, absent);
        *ret = (struct backend_result){ .n_inputs = job->n_local,
                                        .found = BACKEND_NOWHERE,
                                        .sum_squares = exchange->written,
                                        .input_sum_squares = exchange->taken.squares,
                                        .input_nonfinite = exchange->taken.nonfinite };
        return piece.last;
}

void exchange_let_go(struct exchange *exchange) {
        slot_set_state(exchange_slot(exchange, exchange->free++), SLOT_FREE);
}
