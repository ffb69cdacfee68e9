/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels for GPUs, run on the CPU, against those of the host backend: the same bits for every type,
 * operation, number of inputs, odd length and alignment; statistics that do not depend on the grid, and agree
 * with the host's; launches of many parts.
 */
#define TESTS_OWN_MAIN
#include "tests.h"

#include <math.h>

#include "backend/cuda/launch.h"
#include "base/cleanup.h"
#include "kernel/kernel.h"
#include "proto/frame.h"
#include "proto/names.h"
#include "tests/fakes/kernel.h"

#define MEMBERS 34u /* twice the most that one shape has */
#define RANGE (GRID_ROUND_BYTES * 5u / 2u)
#define GUARD 64u

extern const struct fake_kernel *fake_kernels(size_t *n);

static const unsigned dtypes[] = { WIRE__DTYPE__F32, WIRE__DTYPE__F64, WIRE__DTYPE__F16, WIRE__DTYPE__BF16,
                                   WIRE__DTYPE__I32, WIRE__DTYPE__I64, WIRE__DTYPE__U8 };
static const unsigned reduces[] = { WIRE__REDUCE__AVG, WIRE__REDUCE__SUM,  WIRE__REDUCE__MIN,
                                    WIRE__REDUCE__MAX, WIRE__REDUCE__PROD, WIRE__REDUCE__REDUCE_NONE };

struct outcome {
        double sums[MEMBERS + 1]; /* the result's first */
        uint64_t nonfinite[MEMBERS];
};

static unsigned char *before[MEMBERS], *host[MEMBERS], *device[MEMBERS];
static uint64_t scratch[1u << 16], results[4096], seed = 88172645463325252u;
static uint32_t ticket;

static uint64_t random_next(void) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed;
}

static bool is_float(unsigned dtype) {
        return dtype == WIRE__DTYPE__F32 || dtype == WIRE__DTYPE__F64 || dtype == WIRE__DTYPE__F16 ||
               dtype == WIRE__DTYPE__BF16;
}

/* Random bits hold all there is: subnormals, infinities and NaNs too. `tame`: exponents near 1 instead, as of
 * gradients. */
static void fill(unsigned dtype, bool tame) {
        for (unsigned m = 0; m < MEMBERS; m++)
                for (size_t i = 0; i < RANGE / 8; i++) {
                        uint64_t bits = random_next();
                        if (tame && dtype == WIRE__DTYPE__F64)
                                bits = (bits & 0x803fffffffffffff) | 0x3fc0000000000000;
                        else if (tame && dtype == WIRE__DTYPE__F32)
                                bits = (bits & 0x81ffffff81ffffff) | 0x3e0000003e000000;
                        else if (tame && dtype == WIRE__DTYPE__F16)
                                bits = (bits & 0x87ff87ff87ff87ff) | 0x3000300030003000;
                        else if (tame && dtype == WIRE__DTYPE__BF16)
                                bits = (bits & 0x81ff81ff81ff81ff) | 0x3e003e003e003e00;
                        memcpy(before[m] + i * 8, &bits, 8);
                }
}

static int setup(void **state) {
        for (unsigned m = 0; m < MEMBERS; m++)
                if ((before[m] = aligned_alloc(64, RANGE + 2 * GUARD)) == NULL ||
                    (host[m] = aligned_alloc(64, RANGE + 2 * GUARD)) == NULL ||
                    (device[m] = aligned_alloc(64, RANGE + 2 * GUARD)) == NULL)
                        return -1;
        return 0;
}

static int teardown(void **state) {
        for (unsigned m = 0; m < MEMBERS; m++) {
                free(before[m]);
                free(host[m]);
                free(device[m]);
        }
        return 0;
}

/* So many bytes of both sides as they were before; what follows them must not change either. */
static void restore(size_t bytes) {
        for (unsigned m = 0; m < MEMBERS; m++) {
                memcpy(host[m], before[m], bytes);
                memcpy(device[m], before[m], bytes);
                memset(host[m] + bytes, 0xa5, GUARD);
                memset(device[m] + bytes, 0xa5, GUARD);
        }
}

static void run(struct launch *launch, unsigned cap) {
        size_t n;
        const struct fake_kernel *kernels = fake_kernels(&n);
        const unsigned grid[3] = { launch_blocks(launch, cap), 1, 1 }, block[3] = { GRID_THREADS, 1, 1 };
        void *parameters[] = { &launch->grid };

        launch->grid.scratch = (uintptr_t)scratch;
        launch->grid.results = (uintptr_t)results;
        launch->grid.ticket = (uintptr_t)&ticket;
        memset(scratch, 0xff, launch->scratch_words * sizeof(*scratch));
        memset(results, 0xff, launch->result_words * sizeof(*results));
        for (size_t i = 0; i < n; i++)
                if (strcmp(kernels[i].name, launch_names[launch->kernel]) == 0) {
                        assert_int_equal(kernels[i].n_parameters, 1);
                        assert_int_equal(kernels[i].parameter_bytes[0], sizeof(struct grid_launch));
                        kernels[i].run(parameters, grid, block);
                        return;
                }
        fail_msg("no kernel %s", launch_names[launch->kernel]);
}

struct shape {
        unsigned dtype, reduce, members;
        size_t offset, elements; /* bytes; elements */
        bool apart;              /* the outputs are others than the inputs */
};

static struct launch_part part_of(const struct shape *shape, uint64_t *inputs, uint64_t *outputs) {
        for (unsigned m = 0; m < shape->members; m++) {
                inputs[m] = (uintptr_t)(device[m] + shape->offset);
                outputs[m] = shape->apart ? (uintptr_t)(device[MEMBERS - 1 - m] + shape->offset) : inputs[m];
        }
        return (struct launch_part){
                .dtype = shape->dtype,
                .reduce = shape->reduce,
                .divisor = shape->members + 1,
                .elements = shape->elements,
                .n_inputs = shape->reduce == WIRE__REDUCE__REDUCE_NONE ? 1 : shape->members,
                .n_outputs = shape->members,
                .inputs = inputs,
                .outputs = outputs,
                .statistics = true,
        };
}

static struct outcome outcome_of(const struct grid_part *part, unsigned dtype) {
        struct outcome outcome = { { 0 }, { 0 } };
        const uint64_t *word = results + part->result;

        for (unsigned i = 0; i <= part->n_inputs && is_float(dtype); i++)
                memcpy(&outcome.sums[i], &word[i], sizeof(double));
        for (unsigned i = 0; i < part->n_inputs && is_float(dtype); i++)
                outcome.nonfinite[i] = word[part->n_inputs + 1 + i];
        return outcome;
}

static struct outcome reduce_device(const struct shape *shape, unsigned cap) {
        uint64_t inputs[MEMBERS], outputs[MEMBERS];
        struct launch_part part = part_of(shape, inputs, outputs);
        struct launch launch;

        assert_true(launch_kernel(&part) >= 0);
        launch_init(&launch, (unsigned)launch_kernel(&part));
        assert_true(launch_add(&launch, &part, array_size(scratch), array_size(results)));
        run(&launch, cap);
        return outcome_of(&launch.grid.part[0], shape->dtype);
}

static struct outcome reduce_host(const struct shape *shape) {
        const struct kernel_set *set = kernel_find("baseline");
        enum kernel_op op = shape->reduce == WIRE__REDUCE__PROD  ? KERNEL_MUL
                            : shape->reduce == WIRE__REDUCE__MIN ? KERNEL_MIN
                            : shape->reduce == WIRE__REDUCE__MAX ? KERNEL_MAX
                                                                 : KERNEL_ADD;
        bool copy = shape->reduce == WIRE__REDUCE__REDUCE_NONE;
        const unsigned char *inputs[MEMBERS];
        unsigned char *outputs[MEMBERS];
        struct outcome outcome = { { 0 }, { 0 } };
        double divided = 1.0 / (shape->members + 1);
        struct kernel_slice slice = {
                .inputs = inputs,
                .outputs = outputs,
                .n_inputs = copy ? 1 : shape->members,
                .n_outputs = shape->members,
                .elements = shape->elements,
                .scale = shape->reduce != WIRE__REDUCE__AVG ? 1
                         : shape->dtype == WIRE__DTYPE__F64 ? divided
                                                            : (float)divided,
                .measure = is_float(shape->dtype),
                .input_sums = outcome.sums + 1,
                .result_sum = outcome.sums,
                .input_nonfinite = outcome.nonfinite,
        };

        for (unsigned m = 0; m < shape->members; m++) {
                inputs[m] = host[m] + shape->offset;
                outputs[m] = host[shape->apart ? MEMBERS - 1 - m : m] + shape->offset;
        }
        kernel_run(copy ? set->copy[shape->dtype] : set->reduce[shape->dtype][op], &slice,
                   dtype_size(shape->dtype));
        return outcome;
}

static bool is_nan(unsigned dtype, const unsigned char *at) {
        uint64_t bits = 0, exponent = dtype == WIRE__DTYPE__F64   ? 0x7ff0000000000000
                                      : dtype == WIRE__DTYPE__F32 ? 0x7f800000
                                      : dtype == WIRE__DTYPE__F16 ? 0x7c00
                                                                  : 0x7f80;
        memcpy(&bits, at, dtype_size(dtype));
        bits &= dtype == WIRE__DTYPE__F64 ? INT64_MAX : (UINT64_C(1) << (8 * dtype_size(dtype) - 1)) - 1;
        return bits > exponent;
}

static size_t end_of(const struct shape *shape) {
        return shape->offset + shape->elements * dtype_size(shape->dtype);
}

/* Every byte of every member, inside and outside of the range; which NaN comes out of a computation is not
 * fixed. */
static void check_values(const struct shape *shape, size_t bytes) {
        size_t size = dtype_size(shape->dtype);

        for (unsigned m = 0; m < MEMBERS; m++)
                for (size_t at = 0;
                     at < bytes + GUARD && memcmp(host[m] + at, device[m] + at, bytes + GUARD - at) != 0;
                     at += size)
                        if (memcmp(host[m] + at, device[m] + at, size) != 0 &&
                            !(shape->reduce != WIRE__REDUCE__REDUCE_NONE && is_float(shape->dtype) &&
                              is_nan(shape->dtype, host[m] + at) && is_nan(shape->dtype, device[m] + at)))
                                fail_msg("dtype %u reduce %u members %u elements %zu offset %zu: member %u "
                                         "differs at byte %zu",
                                         shape->dtype, shape->reduce, shape->members, shape->elements,
                                         shape->offset, m, at);
}

static void check_statistics(const struct shape *shape, const struct outcome *a, const struct outcome *b) {
        unsigned n = shape->reduce == WIRE__REDUCE__REDUCE_NONE ? 1 : shape->members;

        for (unsigned i = 0; i <= n; i++)
                if (isfinite(a->sums[i]) && isfinite(b->sums[i]))
                        assert_true(fabs(a->sums[i] - b->sums[i]) <= 1e-12 * fabs(a->sums[i]));
                else
                        assert_int_equal(isfinite(a->sums[i]), isfinite(b->sums[i]));
        for (unsigned i = 0; i < n && is_float(shape->dtype); i++)
                assert_int_equal(a->nonfinite[i], b->nonfinite[i]);
}

static void check(const struct shape *shape) {
        struct outcome expected, found, again;

        restore(end_of(shape));
        expected = reduce_host(shape);
        found = reduce_device(shape, 0);
        check_values(shape, end_of(shape));
        check_statistics(shape, &expected, &found);
        for (unsigned m = 0; m < MEMBERS; m++)
                memcpy(device[m], before[m], end_of(shape));
        again = reduce_device(shape, 1 + shape->elements % 3);
        check_values(shape, end_of(shape));
        assert_memory_equal(&found, &again, sizeof(found));
}

static void check_lengths(unsigned dtype, unsigned reduce) {
        static const size_t lengths[] = { 0, 1, 2, 3, 7, 8, 17, 255, 1023, 4099 };
        static const unsigned members[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 17 };
        size_t size = dtype_size(dtype);

        if (reduce == WIRE__REDUCE__AVG && !is_float(dtype))
                return;
        for (size_t k = 0; k < array_size(members); k++)
                for (size_t i = 0; i < array_size(lengths); i++)
                        check(&(struct shape){ dtype, reduce, members[k], i % 3 == 1 ? size : 64 * (i % 2),
                                               lengths[i], .apart = (i + k) % 2 });
        check(&(struct shape){ dtype, reduce, 2, 0, RANGE / size, false });
        check(&(struct shape){ dtype, reduce, 11, 0, RANGE / size - 1, true });
}

TEST_ALONE(test_results_have_the_bits_of_the_host) {
        for (size_t d = 0; d < array_size(dtypes); d++)
                for (unsigned tame = 0; tame < 2; tame++) {
                        fill(dtypes[d], tame);
                        for (size_t r = 0; r < array_size(reduces); r++)
                                check_lengths(dtypes[d], reduces[r]);
                }
}

/* All 65536 values, through a copy of an average by one, which rounds. */
TEST_ALONE(test_all_16_bit_floats_are_converted) {
        for (unsigned d = 2; d < 4; d++)
                for (uint32_t base = 0; base < 65536; base += 32768) {
                        for (uint32_t i = 0; i < 32768; i++) {
                                uint16_t bits = (uint16_t)(base + i);
                                memcpy(before[0] + 2 * i, &bits, 2);
                        }
                        check(&(struct shape){ dtypes[d], WIRE__REDUCE__SUM, 1, 0, 32768, false });
                        check(&(struct shape){ dtypes[d], WIRE__REDUCE__AVG, 1, 0, 32768, false });
                }
}

/* A part above GRID_CHUNKS rounds has chunks of several; no memory of that size is needed to see the cut. */
TEST_ALONE(test_large_parts_are_cut_into_a_bounded_number_of_chunks) {
        uint64_t address[] = { 4096, 8192 };
        struct launch_part part = { .dtype = WIRE__DTYPE__F32,
                                    .reduce = WIRE__REDUCE__SUM,
                                    .n_inputs = 2,
                                    .n_outputs = 2,
                                    .inputs = address,
                                    .outputs = address };
        struct launch launch;

        for (uint64_t bytes = 4; bytes <= UINT64_C(1) << 46; bytes = bytes * 3 / 4 * 2) {
                part.elements = bytes / 4;
                launch_init(&launch, (unsigned)launch_kernel(&part));
                assert_true(launch_add(&launch, &part, GRID_SCRATCH_WORDS, 64));
                const struct grid_part *cut = &launch.grid.part[0];
                assert_in_range(cut->n_chunks, 1, GRID_CHUNKS);
                assert_true((uint64_t)cut->n_chunks * cut->rounds * GRID_ROUND_BYTES >= bytes);
                assert_true((uint64_t)(cut->n_chunks - 1) * cut->rounds * GRID_ROUND_BYTES < bytes);
        }
        assert_int_equal(launch_blocks(&launch, 7), 7);
        uint64_t all[2 * LIMIT_LOCAL] = { 0 };
        part = (struct launch_part){ .dtype = WIRE__DTYPE__F64,
                                     .reduce = WIRE__REDUCE__MAX,
                                     .elements = LIMIT_ARENA / 8,
                                     .n_inputs = LIMIT_LOCAL,
                                     .n_outputs = LIMIT_LOCAL,
                                     .inputs = all,
                                     .outputs = all + LIMIT_LOCAL };
        all[0] = 4096;
        launch_init(&launch, (unsigned)launch_kernel(&part));
        assert_true(launch_add(&launch, &part, GRID_SCRATCH_WORDS, GRID_WORDS(LIMIT_LOCAL)));
}

/* Sums over more chunks than a warp has lanes, and of chunks of several rounds, which real parts have above
 * 128 MiB only. */
TEST_ALONE(test_sums_are_whole_over_many_chunks_and_rounds) {
        static float values[2][70 * GRID_ROUND_BYTES / sizeof(float) - 3];
        static const unsigned kernels[] = { GRID_KERNEL_sum_f32_2, GRID_KERNEL_sum_f32 };
        uint64_t inputs[] = { (uintptr_t)values[0], (uintptr_t)values[1] };
        struct launch_part part = { .dtype = WIRE__DTYPE__F32,
                                    .reduce = WIRE__REDUCE__SUM,
                                    .elements = array_size(values[0]),
                                    .n_inputs = 2,
                                    .n_outputs = 2,
                                    .inputs = inputs,
                                    .outputs = inputs };

        for (unsigned rounds = 1; rounds <= 3; rounds += 2)
                for (unsigned i = 0; i < 2; i++) {
                        double expected[3] = { 0 };
                        struct launch launch;
                        for (size_t at = 0; at < array_size(values[0]); at++) {
                                double a = values[0][at] = (float)(at % 1009),
                                       b = values[1][at] = (float)(at % 911);
                                expected[0] += (a + b) * (a + b); /* integers: exact in any order */
                                expected[1] += a * a;
                                expected[2] += b * b;
                        }
                        launch_init(&launch, GRID_KERNEL_sum_f32_2);
                        assert_true(launch_add(&launch, &part, array_size(scratch), array_size(results)));
                        assert_int_equal(launch.grid.part[0].n_chunks, 70);
                        launch.kernel = kernels[i];
                        launch.grid.part[0].rounds = rounds;
                        launch.grid.part[0].n_chunks = launch.grid.n_chunks = (70 + rounds - 1) / rounds;
                        run(&launch, 0);
                        struct outcome found = outcome_of(&launch.grid.part[0], WIRE__DTYPE__F32);
                        assert_memory_equal(found.sums, expected, sizeof(expected));
                        for (size_t at = 0; at < array_size(values[0]); at++)
                                if (values[1][at] != (float)(at % 1009 + at % 911))
                                        fail_msg("element %zu is %f", at, (double)values[1][at]);
                }
}

TEST_ALONE(test_what_does_not_exist_has_no_kernel) {
        uint64_t address[LIMIT_LOCAL + 1] = { 0 };
        struct launch_part good = { .dtype = WIRE__DTYPE__F32,
                                    .reduce = WIRE__REDUCE__AVG,
                                    .divisor = 1,
                                    .n_inputs = 2,
                                    .n_outputs = 2,
                                    .inputs = address,
                                    .outputs = address },
                           bad;

        assert_true(launch_kernel(&good) >= 0);
        for (unsigned i = 0; i <= 11; i++) {
                bad = good;
                switch (i) {
                case 0: bad.dtype = WIRE__DTYPE__DTYPE_NONE; break;
                case 1: bad.dtype = 99; break;
                case 2: bad.dtype = WIRE__DTYPE__I32; break;
                case 3: bad.divisor = 0; break;
                case 4: bad.n_inputs = 0; break;
                case 5: bad.n_inputs = LIMIT_LOCAL + 1; break;
                case 6: bad.n_outputs = LIMIT_LOCAL + 1; break;
                case 7: bad.n_outputs = 0; break;
                case 8: bad.reduce = 99; break;
                case 9: bad.reduce = WIRE__REDUCE__REDUCE_NONE; break;
                case 10:
                        bad.find = true;
                        bad.reduce = WIRE__REDUCE__REDUCE_NONE;
                        bad.n_inputs = 1;
                        break;
                default: bad.elements = LIMIT_ARENA + 1;
                }
                if (launch_kernel(&bad) != -1)
                        fail_msg("case %u has kernel %d", i, launch_kernel(&bad));
        }
}

/* Small buckets share a launch until it is full; each has the results that it has alone. */
TEST_ALONE(test_parts_share_a_launch) {
        struct launch launch;
        struct outcome alone[GRID_PARTS];
        uint64_t inputs[GRID_PARTS][MEMBERS], outputs[GRID_PARTS][MEMBERS];
        struct shape shape[GRID_PARTS];
        unsigned n = 0;

        fill(WIRE__DTYPE__BF16, true);
        restore(RANGE);
        launch_init(&launch, GRID_KERNEL_sum_bf16_3);
        for (size_t offset = 0; n < GRID_PARTS; n++) {
                shape[n] =
                        (struct shape){ WIRE__DTYPE__BF16, WIRE__REDUCE__AVG, 3, offset, 1 + 97 * n, n % 2 };
                reduce_host(&shape[n]);
                alone[n] = reduce_device(&shape[n], 0);
                offset += (shape[n].elements * 2 + 63) / 64 * 64;
        }
        for (unsigned m = 0; m < MEMBERS; m++)
                memcpy(device[m], before[m], RANGE);
        for (unsigned p = 0; p < n; p++) {
                struct launch_part part = part_of(&shape[p], inputs[p], outputs[p]);
                assert_true(launch_add(&launch, &part, array_size(scratch), array_size(results)));
        }
        struct launch_part more = part_of(&shape[0], inputs[0], outputs[0]), other = more;
        assert_false(launch_add(&launch, &more, array_size(scratch), array_size(results)));
        other.n_inputs = 2;
        launch_init(&launch, launch.kernel);
        assert_false(launch_add(&launch, &other, array_size(scratch), array_size(results)));
        assert_false(launch_add(&launch, &more, launch_scratch_words(&more) - 1, array_size(results)));
        assert_false(launch_add(&launch, &more, array_size(scratch), launch_result_words(&more) - 1));
        for (unsigned p = 0; p < n; p++) {
                struct launch_part part = part_of(&shape[p], inputs[p], outputs[p]);
                assert_true(launch_add(&launch, &part, array_size(scratch), array_size(results)));
        }
        run(&launch, 5);
        check_values(&shape[0], RANGE);
        for (unsigned p = 0; p < n; p++) {
                struct outcome found = outcome_of(&launch.grid.part[p], WIRE__DTYPE__BF16);
                assert_memory_equal(&found, &alone[p], sizeof(found));
        }
}

TEST_ALONE(test_the_first_element_that_is_not_finite_is_found) {
        static const size_t places[] = { 0, 1, 255, 256, 3000, 9000 };

        for (unsigned d = 0; d < 4; d++) /* floats */
                for (size_t i = 0; i <= array_size(places); i++) {
                        size_t size = dtype_size(dtypes[d]), elements = 10001, at;
                        uint64_t input = (uintptr_t)device[0];
                        struct launch_part part = { .dtype = dtypes[d],
                                                    .elements = elements,
                                                    .n_inputs = 1,
                                                    .inputs = &input,
                                                    .find = true };
                        struct launch launch;
                        memset(device[0], 0x11, RANGE);
                        for (at = i; at < array_size(places); at++)
                                memset(device[0] + places[at] * size, 0xff, size);
                        launch_init(&launch, (unsigned)launch_kernel(&part));
                        assert_true(launch_add(&launch, &part, array_size(scratch), array_size(results)));
                        run(&launch, i % 2);
                        assert_true(results[0] == (i < array_size(places) ? places[i] : UINT64_MAX));
                }
}

int main(void) {
        return tests_run(setup, teardown);
}
