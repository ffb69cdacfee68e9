/* SPDX-License-Identifier: Apache-2.0 */
/* What a step brought beside the gradients: norms, non-finite counts and unused parameters. Allocated once per plan. */
#pragma once

#include <stdint.h>

#include "client/lib/plan/layout.h"
#include "gradsync.pb-c.h"

struct results {
        uint32_t world, n_buckets;
        uint32_t room;        /* ranks that the arrays have room for */
        double *sum_squares;  /* per bucket, of the result */
        double *rank_squares; /* per bucket and rank, of the input */
        uint64_t *rank_nonfinite;
        uint8_t *unused; /* per parameter */
};

int results_init(struct results *results, const struct layout *layout, uint32_t world);
/* For so many ranks from now on: no more than it was made for. */
void results_world(struct results *results, uint32_t world);
void results_deinit(struct results *results);
/* Takes one bucket's result. PROTOCOL with the text if it does not fit the plan. */
int results_take(struct results *results, const struct layout *layout, const Wire__BucketResult *result);

double results_norm(const struct results *results); /* over all buckets */
uint64_t results_nonfinite(const struct results *results,
                           int64_t *ret_rank); /* lowest rank that had some, or -1 */
