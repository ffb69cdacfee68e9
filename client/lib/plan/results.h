/* SPDX-License-Identifier: Apache-2.0 */
/* struct results: the results of a step beside the gradients, that is norms, non-finite counts and unused
 * parameters. Allocated with the plan. */
#pragma once

#include <stdint.h>

#include "client/lib/plan/layout.h"
#include "gradsync.pb-c.h"

struct results {
        uint32_t world, n_buckets;
        /* Ranks that the arrays have room for. */
        uint32_t room;
        /* Per bucket: sum of squares of the result. */
        double *sum_squares;
        /* Per bucket and rank: sum of squares of the input, and its non-finite elements. */
        double *rank_squares;
        uint64_t *rank_nonfinite;
        /* Per parameter: no member has used it. */
        uint8_t *unused;
};

int results_init(struct results *results, const struct layout *layout, uint32_t world);
/* The number of ranks from now on: at most the number that it was made for. */
void results_world(struct results *results, uint32_t world);
void results_deinit(struct results *results);
/* Takes one bucket's result. PROTOCOL with the text if it does not fit the plan. */
int results_take(struct results *results, const struct layout *layout, const Wire__BucketResult *result);

/* Returns the norm of the result over all buckets. */
double results_norm(const struct results *results);
/* Returns the payload of the buckets in which some member has used a parameter. */
uint64_t results_bytes(const struct results *results, const struct layout *layout);
uint64_t results_nonfinite(const struct results *results,
                           /* Lowest rank that had some, or -1. */
                           int64_t *ret_rank);
