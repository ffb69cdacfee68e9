/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward produces gradients roughly in the reverse of the order in which layers were registered. So buckets
 * are filled from the last parameter to the first, with one open bucket per element type, and launched in
 * that order. The first bucket of a type is small: its reduction starts early. In registered memory a bucket
 * goes on as long as the next parameter lies where it would lie in an arena.
 */
#include "client/lib/plan/layout.h"

#include <stdbool.h>
#include <stdlib.h>

#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"
#include "proto/diagnosis.h"

/* Numbers of element types are below this. */
#define DTYPES 8u

static int layout_allocate(struct layout *layout, uint32_t n) {
        layout->n_params = n;
        layout->bucket = calloc(n, sizeof(*layout->bucket));
        layout->order = calloc(n, sizeof(*layout->order));
        layout->bucket_of = calloc(n, sizeof(*layout->bucket_of));
        layout->place = calloc(n, sizeof(*layout->place));
        layout->offset = calloc(n, sizeof(*layout->offset));
        if (layout->bucket && layout->order && layout->bucket_of && layout->place && layout->offset)
                return GRADSYNC_OK;
        layout_deinit(layout);
        return fail(GRADSYNC_NO_MEMORY, "no memory for the layout of %u parameters", n);
}

/* Whether parameter i can go in front of `next` in its bucket. */
static bool layout_fits_before(const struct param *i, const struct param *next) {
        return i->memory == next->memory &&
               (i->memory == NULL || frame_round_up(i->offset + i->bytes, ARENA_ALIGN) == next->offset);
}

/* Fills bucket_of with provisional numbers, in the order in which buckets were opened; `first` of a bucket
 * is its smallest parameter for the time being. */
static void layout_fill(struct layout *layout, const struct params *params, uint64_t first_limit,
                        uint64_t limit) {
        /* Number of the open bucket plus one. */
        uint32_t open[DTYPES] = { 0 };
        /* The first bucket of this type is closed. */
        bool later[DTYPES] = { false };

        for (uint32_t i = params->n; i-- > 0;) {
                unsigned dtype = params->list[i].dtype;
                struct layout_bucket *bucket;

                if (open[dtype] > 0 &&
                    !layout_fits_before(&params->list[i],
                                        &params->list[layout->bucket[open[dtype] - 1].first])) {
                        open[dtype] = 0;
                        later[dtype] = true;
                }
                if (open[dtype] == 0)
                        open[dtype] = ++layout->n_buckets;
                bucket = &layout->bucket[open[dtype] - 1];
                bucket->dtype = dtype;
                bucket->memory = params->list[i].memory;
                bucket->first = i;
                bucket->n++;
                bucket->payload += params->list[i].bytes;
                layout->bucket_of[i] = open[dtype] - 1;
                if (bucket->payload >= (later[dtype] ? limit : first_limit)) {
                        open[dtype] = 0;
                        later[dtype] = true;
                }
        }
}

static int layout_by_first(const void *a, const void *b) {
        const struct layout_bucket *x = a, *y = b;

        return x->first < y->first ? 1 : x->first > y->first ? -1 : 0;
}

/* Puts buckets in launch order and renumbers; then `first` becomes the place in `order`. */
static int layout_arrange(struct layout *layout, const struct params *params) {
        /* The final number of a bucket, by its smallest parameter. */
        uint32_t *number = calloc(params->n, sizeof(*number));
        /* The smallest parameter of a bucket, by its provisional number. */
        uint32_t *smallest = calloc(params->n, sizeof(*smallest));
        uint32_t at = 0;

        if (number == NULL || smallest == NULL) {
                free(number);
                free(smallest);
                return fail(GRADSYNC_NO_MEMORY, "no memory for the layout of %u parameters", params->n);
        }
        for (uint32_t b = 0; b < layout->n_buckets; b++)
                smallest[b] = layout->bucket[b].first;
        qsort(layout->bucket, layout->n_buckets, sizeof(*layout->bucket), layout_by_first);
        for (uint32_t b = 0; b < layout->n_buckets; b++) {
                number[layout->bucket[b].first] = b;
                layout->bucket[b].first = at;
                at += layout->bucket[b].n;
                layout->bucket[b].n = 0;
        }
        for (uint32_t i = 0; i < params->n; i++) {
                struct layout_bucket *bucket;

                layout->bucket_of[i] = number[smallest[layout->bucket_of[i]]];
                bucket = &layout->bucket[layout->bucket_of[i]];
                layout->place[i] = bucket->n;
                layout->order[bucket->first + bucket->n++] = i;
        }
        free(number);
        free(smallest);
        return GRADSYNC_OK;
}

/* Places a bucket where the trainer put its parameters: from the first one to the end of the last one. */
static void layout_place_in_memory(struct layout *layout, const struct params *params,
                                   struct layout_bucket *bucket) {
        for (uint32_t k = 0; k < bucket->n; k++) {
                uint32_t i = layout->order[bucket->first + k];

                layout->offset[i] = params->list[i].offset;
                if (k == 0)
                        bucket->offset = layout->offset[i];
                bucket->bytes = layout->offset[i] + params->list[i].bytes - bucket->offset;
        }
}

static int layout_place(struct layout *layout, const struct params *params) {
        uint64_t at = 0;

        layout->control_bytes = diagnosis_bytes(params->n);
        for (uint32_t b = 0; b < layout->n_buckets; b++) {
                struct layout_bucket *bucket = &layout->bucket[b];

                layout->payload += bucket->payload;
                if (bucket->memory != NULL) {
                        layout_place_in_memory(layout, params, bucket);
                        continue;
                }
                bucket->offset = at;
                for (uint32_t k = 0; k < bucket->n; k++) {
                        uint32_t i = layout->order[bucket->first + k];

                        at = frame_round_up(at, ARENA_ALIGN);
                        layout->offset[i] = at;
                        at += params->list[i].bytes;
                        if (at > LIMIT_ARENA)
                                return fail(GRADSYNC_INVALID,
                                            "the parameters up to \"%s\" need more than the %llu bytes "
                                            "that one arena can hold; make several plans",
                                            params->list[i].name, (unsigned long long)LIMIT_ARENA);
                }
                bucket->bytes = at - bucket->offset;
                at = frame_round_up(at, ARENA_PAGE);
        }
        layout->arena_bytes = at;
        return GRADSYNC_OK;
}

int layout_init(struct layout *layout, const struct params *params, uint64_t first_bucket_bytes,
                uint64_t bucket_bytes) {
        *layout = (struct layout){ 0 };
        if (params->n == 0)
                return fail(GRADSYNC_STATE, "a plan needs parameters: call gradsync_param() first");
        if (first_bucket_bytes == 0 || bucket_bytes == 0)
                return fail(GRADSYNC_INVALID, "bucket limits are at least 1 byte");
        int r = layout_allocate(layout, params->n);
        if (r != GRADSYNC_OK)
                return r;
        layout_fill(layout, params, first_bucket_bytes, bucket_bytes);
        if (layout->n_buckets > LIMIT_BUCKETS)
                r = fail(GRADSYNC_INVALID,
                         "the parameters make %u buckets, at most %u are possible; raise bucket_bytes",
                         layout->n_buckets, LIMIT_BUCKETS);
        if (r == GRADSYNC_OK)
                r = layout_arrange(layout, params);
        if (r == GRADSYNC_OK)
                r = layout_place(layout, params);
        if (r != GRADSYNC_OK)
                layout_deinit(layout);
        return r;
}

void layout_deinit(struct layout *layout) {
        free(layout->bucket);
        free(layout->order);
        free(layout->bucket_of);
        free(layout->place);
        free(layout->offset);
        *layout = (struct layout){ 0 };
}
