/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The example's perceptron: its gradients against finite differences of its loss, the identity that sharding
 * a batch rests on, and the hash by which members compare their parameters.
 */
#include <math.h>

#include "tests.h"

#include "client/examples/mlp.h"

#define ROWS 6
#define IN 5
#define CLASSES 3
#define LAYERS 3
#define MOST 64

static const size_t widths[LAYERS + 1] = { IN, 7, 4, CLASSES };
static const uint8_t label[ROWS] = { 0, 1, 2, 2, 1, 0 };

struct gradients {
        float weight[LAYERS][MOST], bias[LAYERS][MOST];
};

static void fill(float *input) {
        for (size_t i = 0; i < (size_t)ROWS * IN; i++)
                input[i] = (float)((i * 37 + 11) % 101) / 101.f - 0.3f;
}

/* Biases start at 0, where a unit of mirrored inputs would sit on the kink of its ReLU: give each a value of
 * its own. */
static void new_mlp(struct mlp *mlp, uint64_t seed) {
        assert_int_equal(mlp_init(mlp, -1, widths, LAYERS, ROWS, seed), 0);
        for (size_t l = 0; l < LAYERS; l++)
                for (size_t o = 0; o < mlp->layer[l].out; o++)
                        mlp->layer[l].bias[o] = 0.05f * (float)(o + 1);
}

static void backward(struct mlp *mlp, struct gradients *gradients) {
        memset(gradients, 0xff, sizeof(*gradients)); /* not a number: backward has to overwrite it */
        for (size_t l = LAYERS; l-- > 0;)
                mlp_backward(mlp, l, gradients->weight[l], gradients->bias[l]);
}

static double loss_of(struct mlp *mlp, const float *input, const uint8_t *labels, size_t rows) {
        mlp_forward(mlp, input, labels, rows);
        return mlp_loss(mlp);
}

static double slope(struct mlp *mlp, float *value, const float *input) {
        const float kept = *value, h = 1e-3f;
        *value = kept + h;
        double above = loss_of(mlp, input, label, ROWS) / ROWS, high = *value;
        *value = kept - h;
        double below = loss_of(mlp, input, label, ROWS) / ROWS, low = *value;
        *value = kept;
        return (above - below) / (high - low);
}

static void assert_slopes(struct mlp *mlp, float *value, const float *gradient, size_t count,
                          const float *input) {
        for (size_t i = 0; i < count; i++) {
                double wanted = slope(mlp, &value[i], input);
                assert_true(fabs(wanted - (double)gradient[i]) < 1e-3 * fmax(1., fabs(wanted)));
        }
}

TEST_ALONE(test_gradients_are_slopes) {
        struct gradients gradients;
        float input[ROWS * IN];
        struct mlp mlp;

        fill(input);
        new_mlp(&mlp, 7);
        mlp_forward(&mlp, input, label, ROWS);
        backward(&mlp, &gradients);
        double sum = 0.;
        for (size_t l = 0; l < LAYERS; l++) {
                struct mlp_layer *layer = &mlp.layer[l];
                assert_slopes(&mlp, layer->weight, gradients.weight[l], layer->in * layer->out, input);
                assert_slopes(&mlp, layer->bias, gradients.bias[l], layer->out, input);
                for (size_t i = 0; i < layer->in * layer->out; i++)
                        sum += fabs((double)gradients.weight[l][i]);
        }
        assert_true(sum > 0.1); /* a network of nothing but zeros would pass as well */
        mlp_deinit(&mlp);
}

/* The mean of the gradients of equal shares is the gradient of the whole batch: what averaging across members
 * relies on. */
TEST_ALONE(test_shares_average_to_the_whole) {
        struct gradients whole, first, second;
        float input[ROWS * IN];
        struct mlp mlp;

        fill(input);
        new_mlp(&mlp, 3);
        double loss = loss_of(&mlp, input, label, ROWS);
        backward(&mlp, &whole);
        double shares = loss_of(&mlp, input, label, ROWS / 2);
        backward(&mlp, &first);
        shares += loss_of(&mlp, input + ROWS / 2 * IN, label + ROWS / 2, ROWS / 2);
        backward(&mlp, &second);

        assert_true(fabs(loss - shares) < 1e-6 * loss);
        for (size_t l = 0; l < LAYERS; l++)
                for (size_t i = 0; i < mlp.layer[l].in * mlp.layer[l].out; i++)
                        assert_true(fabsf(whole.weight[l][i] -
                                          (first.weight[l][i] + second.weight[l][i]) / 2.f) < 1e-6f);
        mlp_deinit(&mlp);
}

TEST_ALONE(test_descending_learns) {
        struct gradients gradients;
        float input[ROWS * IN];
        struct mlp mlp;

        fill(input);
        new_mlp(&mlp, 1);
        double before = loss_of(&mlp, input, label, ROWS);
        for (int step = 0; step < 500; step++) {
                mlp_forward(&mlp, input, label, ROWS);
                backward(&mlp, &gradients);
                for (size_t l = 0; l < LAYERS; l++)
                        mlp_update(&mlp, l, gradients.weight[l], gradients.bias[l], 0.1f, 0.9f);
        }
        assert_true(loss_of(&mlp, input, label, ROWS) < 0.1 * before);
        assert_int_equal(mlp_correct(&mlp, input, label, ROWS), ROWS);
        mlp_deinit(&mlp);
}

TEST_ALONE(test_hash_tells_parameters_apart) {
        struct mlp one, other;

        new_mlp(&one, 5);
        new_mlp(&other, 5);
        assert_true(mlp_hash(&one) == mlp_hash(&other));
        for (size_t i = 0; i < one.params; i++) { /* each of them counts, down to its last bit */
                uint32_t bits;
                memcpy(&bits, &other.memory[i], sizeof(bits));
                bits ^= 1;
                memcpy(&other.memory[i], &bits, sizeof(bits));
                assert_false(mlp_hash(&one) == mlp_hash(&other));
                other.memory[i] = one.memory[i];
        }
        mlp_deinit(&other);
        new_mlp(&other, 6);
        assert_false(mlp_hash(&one) == mlp_hash(&other));
        mlp_deinit(&other);
        mlp_deinit(&one);
}
