/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a step, in flat arrays indexed by bucket and rank. */
#include "client/lib/plan/results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"

int results_init(struct results *results, const struct layout *layout, uint32_t world) {
        size_t cells = (size_t)layout->n_buckets * world;

        results->world = results->room = world;
        results->n_buckets = layout->n_buckets;
        results->sum_squares = calloc(layout->n_buckets, sizeof(double));
        results->rank_squares = calloc(cells, sizeof(double));
        results->rank_nonfinite = calloc(cells, sizeof(uint64_t));
        results->unused = calloc(layout->n_params, 1);
        if (results->sum_squares && results->rank_squares && results->rank_nonfinite && results->unused)
                return GRADSYNC_OK;
        return fail(GRADSYNC_NO_MEMORY, "no memory for the results of %u buckets of %u members",
                    layout->n_buckets, world);
}

void results_world(struct results *results, uint32_t world) {
        if (world <= results->room)
                results->world = world;
}

void results_deinit(struct results *results) {
        free(results->sum_squares);
        free(results->rank_squares);
        free(results->rank_nonfinite);
        free(results->unused);
        *results = (struct results){ 0 };
}

static void results_take_unused(struct results *results, const struct layout *layout,
                                const Wire__BucketResult *result) {
        const struct layout_bucket *bucket = &layout->bucket[result->bucket];

        for (uint32_t k = 0; k < bucket->n; k++) {
                bool unused = result->has_unused && k / 8 < result->unused.len &&
                              (result->unused.data[k / 8] >> k % 8 & 1) != 0;

                results->unused[layout->order[bucket->first + k]] = unused;
        }
}

int results_take(struct results *results, const struct layout *layout, const Wire__BucketResult *result) {
        size_t world = results->world;
        uint32_t b = result->bucket;

        if (b >= results->n_buckets ||
            (result->n_rank_sum_squares != 0 && result->n_rank_sum_squares != world) ||
            (result->n_rank_nonfinite != 0 && result->n_rank_nonfinite != world))
                return fail(GRADSYNC_PROTOCOL,
                            "gradsyncd sent a result for bucket %u of %zu ranks; the plan has %u buckets "
                            "and %zu ranks",
                            b, result->n_rank_sum_squares, results->n_buckets, world);
        results->sum_squares[b] = result->sum_squares;
        if (result->n_rank_sum_squares != 0)
                memcpy(results->rank_squares + b * world, result->rank_sum_squares, world * sizeof(double));
        else
                memset(results->rank_squares + b * world, 0, world * sizeof(double));
        if (result->n_rank_nonfinite != 0)
                memcpy(results->rank_nonfinite + b * world, result->rank_nonfinite, world * sizeof(uint64_t));
        else
                memset(results->rank_nonfinite + b * world, 0, world * sizeof(uint64_t));
        results_take_unused(results, layout, result);
        return GRADSYNC_OK;
}

double results_norm(const struct results *results) {
        double sum = 0;

        for (uint32_t b = 0; b < results->n_buckets; b++)
                sum += results->sum_squares[b];
        return sqrt(sum);
}

static bool results_dropped(const struct results *results, const struct layout *layout, uint32_t b) {
        const struct layout_bucket *bucket = &layout->bucket[b];

        for (uint32_t k = 0; k < bucket->n; k++)
                if (!results->unused[layout->order[bucket->first + k]])
                        return false;
        return true;
}

uint64_t results_bytes(const struct results *results, const struct layout *layout) {
        uint64_t bytes = 0;

        for (uint32_t b = 0; b < layout->n_buckets; b++)
                if (!results_dropped(results, layout, b))
                        bytes += layout->bucket[b].payload;
        return bytes;
}

uint64_t results_nonfinite(const struct results *results, int64_t *ret_rank) {
        uint64_t total = 0;

        *ret_rank = -1;
        for (uint32_t rank = 0; rank < results->world; rank++) {
                uint64_t sum = 0;

                for (uint32_t b = 0; b < results->n_buckets; b++)
                        sum += results->rank_nonfinite[(size_t)b * results->world + rank];
                if (sum > 0 && *ret_rank < 0)
                        *ret_rank = rank;
                total += sum;
        }
        return total;
}
