/* SPDX-License-Identifier: Apache-2.0 */
/* The members' computing; see compute.h. */
#include "compute.h"

#include <string.h>

void compute_init(struct compute *compute) {
        for (unsigned int i = 0; i < COMPUTE_N; i++)
                for (unsigned int j = 0; j < COMPUTE_N; j++) {
                        compute->a[i][j] = (float)((i * 7 + j * 3) % 11) / 11.0f;
                        compute->b[i][j] = (float)((i * 5 + j * 2) % 13) / (13.0f * COMPUTE_N);
                }
}

static void multiply(struct compute *compute) {
        memset(compute->c, 0, sizeof(compute->c));
        for (unsigned int i = 0; i < COMPUTE_N; i++)
                for (unsigned int k = 0; k < COMPUTE_N; k++)
                        for (unsigned int j = 0; j < COMPUTE_N; j++)
                                compute->c[i][j] += compute->a[i][k] * compute->b[k][j];
}

float compute_run(struct compute *compute, unsigned int units) {
        float sum = 0;

        for (unsigned int i = 0; i < units; i++) {
                multiply(compute);
                sum += compute->c[i % COMPUTE_N][i % COMPUTE_N];
                compute->a[i % COMPUTE_N][0] = compute->c[0][i % COMPUTE_N];
        }
        return sum;
}
