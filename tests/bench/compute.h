/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of a trainer between two gradients, reduced to a loop: products of matrices that stay in the
 * core's own cache. The amount of work is fixed, so its time shows how much of the processor others took.
 */
#pragma once

#define COMPUTE_N 64

struct compute {
        float a[COMPUTE_N][COMPUTE_N], b[COMPUTE_N][COMPUTE_N], c[COMPUTE_N][COMPUTE_N];
};

void compute_init(struct compute *compute);
/* Computes `units` products. The result depends on all of them. */
float compute_run(struct compute *compute, unsigned int units);
