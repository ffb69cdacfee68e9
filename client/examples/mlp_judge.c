/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a model: how many rows it gets right, and a hash of its parameters. Asks for the model's numbers and
 * computes on the CPU, wherever the model is. */
#include "mlp.h"

static size_t best_of(const float *score, size_t classes) {
        size_t best = 0;
        for (size_t o = 1; o < classes; o++)
                best = score[o] > score[best] ? o : best;
        return best;
}

size_t mlp_correct(struct mlp *mlp, const float *input, const uint8_t *label, size_t rows) {
        size_t in = mlp->layer[0].in, classes = mlp->layer[mlp->layers - 1].out, correct = 0;

        for (size_t start = 0; start < rows; start += mlp->batch) {
                size_t n = rows - start < mlp->batch ? rows - start : mlp->batch;
                const float *score = mlp_scores(mlp, input + start * in, n);
                for (size_t r = 0; r < n; r++)
                        correct += best_of(score + r * classes, classes) == label[start + r];
        }
        return correct;
}

/* FNV-1a over the parameters' bytes. */
uint64_t mlp_hash(struct mlp *mlp) {
        const unsigned char *byte = (const unsigned char *)mlp_parameters(mlp);
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        for (size_t i = 0; i < mlp->params * sizeof(float); i++)
                hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
        return hash;
}
