/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a GPU with the host for the same kernels: all bits of the results and of the memory around them,
 * and statistics that do not depend on the number of blocks.
 *
 * A trial is one launch. All that it reads and writes lies in one buffer, which exists three times: as it was
 * before, as the host has left it, as the GPU has left it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/gradsync.pb-c.h"
#include "proto/names.h"
#include "reductions.h"
#include "tests/fakes/kernel.h"

#define PARTS 10u
#define INPUTS 17u
#define GUARD 64u
#define BUFFER (12u << 20)

extern const struct fake_kernel *fake_kernels(size_t *n);

struct trial {
        unsigned dtype, reduce, k, n_parts;
        bool find;
        uint64_t elements[PARTS];
        uint64_t in[PARTS][INPUTS], out[PARTS][INPUTS]; /* offsets in the buffer */
        size_t bytes;                                   /* of it that are in use */
        uint32_t words;                                 /* of results */
};

static _Alignas(64) unsigned char before[BUFFER], expected[BUFFER], found[BUFFER];
static uint64_t host_scratch[GRID_SCRATCH_WORDS], host_results[DEVICE_RESULTS], seed = 88172645463325252u;
static struct launch launch;

static uint64_t random_next(void) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed;
}

void type_fill(unsigned dtype, bool tame, void *to, size_t bytes) {
        for (size_t at = 0; at + 8 <= bytes; at += 8) {
                uint64_t bits = random_next();
                if (tame && dtype == WIRE__DTYPE__F64)
                        bits = (bits & 0x803fffffffffffff) | 0x3fc0000000000000;
                else if (tame && dtype == WIRE__DTYPE__F32)
                        bits = (bits & 0x81ffffff81ffffff) | 0x3e0000003e000000;
                else if (tame && dtype == WIRE__DTYPE__F16)
                        bits = (bits & 0x87ff87ff87ff87ff) | 0x3000300030003000;
                else if (tame && dtype == WIRE__DTYPE__BF16)
                        bits = (bits & 0x81ff81ff81ff81ff) | 0x3e003e003e003e00;
                memcpy((char *)to + at, &bits, 8);
        }
}

static uint64_t trial_place(struct trial *trial, uint64_t elements, size_t skew) {
        uint64_t at = trial->bytes + skew;
        size_t end = at + elements * dtype_size(trial->dtype) + GUARD;

        trial->bytes = (end + 63) / 64 * 64;
        return at;
}

/* `skew`: bytes by which it is off its alignment. `apart`: the outputs are others than the inputs. */
static void trial_add(struct trial *trial, uint64_t elements, size_t skew, bool apart) {
        unsigned p = trial->n_parts++;

        trial->elements[p] = elements;
        for (unsigned i = 0; i < trial->k; i++)
                trial->in[p][i] = trial->out[p][i] = trial_place(trial, elements, skew);
        for (unsigned i = 0; i < trial->k && apart; i++)
                trial->out[p][i] = trial_place(trial, elements, skew);
        if (trial->bytes > BUFFER)
                abort(); /* a mistake in the questions */
}

static struct launch_part trial_part(const struct trial *trial, unsigned p, uint64_t base, uint64_t *in,
                                     uint64_t *out) {
        for (unsigned i = 0; i < trial->k; i++) {
                in[i] = base + trial->in[p][i];
                out[i] = base + trial->out[p][i];
        }
        return (struct launch_part){
                .dtype = trial->dtype,
                .reduce = trial->reduce,
                .divisor = trial->k + 1,
                .elements = trial->elements[p],
                .n_inputs = trial->reduce == WIRE__REDUCE__REDUCE_NONE ? 1 : trial->k,
                .n_outputs = trial->find ? 0 : trial->k,
                .inputs = in,
                .outputs = out,
                .statistics = !trial->find,
                .find = trial->find,
        };
}

/* The launch, on memory that begins at this address. */
static void trial_plan(struct trial *trial, uint64_t base) {
        uint64_t in[INPUTS], out[INPUTS];

        for (unsigned p = 0; p < trial->n_parts; p++) {
                struct launch_part part = trial_part(trial, p, base, in, out);
                if (p == 0)
                        launch_init(&launch, (unsigned)launch_kernel(&part));
                if (!launch_add(&launch, &part, GRID_SCRATCH_WORDS, DEVICE_RESULTS))
                        abort();
        }
        trial->words = launch.result_words;
}

static void trial_run_on_host(struct trial *trial) {
        static uint32_t ticket;
        const unsigned block[3] = { GRID_THREADS, 1, 1 };
        void *parameters[] = { &launch.grid };
        size_t n;
        const struct fake_kernel *kernels = fake_kernels(&n);

        memcpy(expected, before, trial->bytes);
        trial_plan(trial, (uintptr_t)expected);
        launch.grid.scratch = (uintptr_t)host_scratch;
        launch.grid.results = (uintptr_t)host_results;
        launch.grid.ticket = (uintptr_t)&ticket;
        for (size_t i = 0; i < n; i++)
                if (strcmp(kernels[i].name, launch_names[launch.kernel]) == 0) {
                        const unsigned grid[3] = { launch_blocks(&launch, 0), 1, 1 };
                        kernels[i].run(parameters, grid, block);
                        return;
                }
        abort();
}

static bool trial_run_on_device(struct trial *trial, struct device *device, unsigned cap) {
        if (!device_put(device, before, trial->bytes))
                return false;
        trial_plan(trial, device->memory);
        memset(device->results, 0xff, trial->words * sizeof(uint64_t));
        return device_launch(device, &launch, cap) && device_wait(device) &&
               device_get(device, found, trial->bytes);
}

/* ---- comparisons: each notes the first difference in the finding ---- */

static bool is_nan(unsigned dtype, const unsigned char *at) {
        static const uint64_t exponents[] = { [WIRE__DTYPE__F32] = 0x7f800000,
                                              [WIRE__DTYPE__F64] = 0x7ff0000000000000,
                                              [WIRE__DTYPE__F16] = 0x7c00,
                                              [WIRE__DTYPE__BF16] = 0x7f80 };
        uint64_t bits = 0, sign = UINT64_C(1) << (8 * dtype_size(dtype) - 1);

        memcpy(&bits, at, dtype_size(dtype));
        return dtype_is_float(dtype) && (bits & ~sign) > exponents[dtype];
}

static uint64_t bits_of(unsigned dtype, const unsigned char *at) {
        uint64_t bits = 0;

        memcpy(&bits, at, dtype_size(dtype));
        return bits;
}

static void trial_name(const struct trial *trial, struct finding *finding, unsigned part, unsigned cap) {
        find_note(finding, "%s, %u inputs of %llu elements, at most %u blocks (0: any number): ",
                  launch_names[launch.kernel], trial->k, (unsigned long long)trial->elements[part], cap);
}

/* Which NaN comes out of a computation is not fixed; such elements are made equal. */
static bool trial_same_output(const struct trial *trial, unsigned part, unsigned output, unsigned cap,
                              struct finding *finding) {
        size_t size = dtype_size(trial->dtype);

        for (uint64_t e = 0; e < trial->elements[part]; e++) {
                uint64_t at = trial->out[part][output] + e * size;
                if (memcmp(expected + at, found + at, size) == 0)
                        continue;
                if (trial->reduce != WIRE__REDUCE__REDUCE_NONE && is_nan(trial->dtype, expected + at) &&
                    is_nan(trial->dtype, found + at)) {
                        memcpy(found + at, expected + at, size);
                        continue;
                }
                trial_name(trial, finding, part, cap);
                find_note(finding, "element %llu of output %u is 0x%llx instead of 0x%llx",
                          (unsigned long long)e, output,
                          (unsigned long long)bits_of(trial->dtype, found + at),
                          (unsigned long long)bits_of(trial->dtype, expected + at));
                return false;
        }
        return true;
}

static bool trial_same_values(const struct trial *trial, unsigned cap, struct finding *finding) {
        for (unsigned p = 0; p < trial->n_parts; p++)
                for (unsigned i = 0; i < trial->k; i++)
                        if (!trial_same_output(trial, p, i, cap, finding))
                                return false;
        for (size_t at = 0; at < trial->bytes; at++)
                if (expected[at] != found[at]) {
                        trial_name(trial, finding, 0, cap);
                        find_note(finding, "byte %zu, which is no output's, was changed", at);
                        return false;
                }
        return true;
}

static bool is_near(uint64_t a_bits, uint64_t b_bits) {
        double a, b;

        memcpy(&a, &a_bits, sizeof a);
        memcpy(&b, &b_bits, sizeof b);
        return isfinite(a) && isfinite(b) ? fabs(a - b) <= 1e-12 * fabs(b) : isfinite(a) == isfinite(b);
}

/* Sums of squares may be added up in another order than on the host; counts and places are exact. */
static bool trial_near_statistics(const struct trial *trial, const uint64_t *words, unsigned cap,
                                  struct finding *finding) {
        for (unsigned p = 0; p < trial->n_parts && trial->words > 0; p++) {
                unsigned k = trial->reduce == WIRE__REDUCE__REDUCE_NONE ? 1 : trial->k;
                for (unsigned w = 0; w < (trial->find ? 1 : GRID_WORDS(k)); w++) {
                        uint32_t at = launch.grid.part[p].result + w;
                        bool is_sum = !trial->find && w <= k;
                        if (words[at] == host_results[at] || (is_sum && is_near(words[at], host_results[at])))
                                continue;
                        trial_name(trial, finding, p, cap);
                        find_note(finding, "word %u of its statistics is 0x%llx instead of 0x%llx", w,
                                  (unsigned long long)words[at], (unsigned long long)host_results[at]);
                        return false;
                }
        }
        return true;
}

/* The GPU, with each of these limits of blocks, against the host. */
static bool trial_check(struct trial *trial, struct device *device, const unsigned *caps, unsigned n_caps,
                        struct finding *finding) {
        static uint64_t words[DEVICE_RESULTS];

        trial_run_on_host(trial);
        for (unsigned i = 0; i < n_caps; i++) {
                size_t bytes = trial->words * sizeof(uint64_t);
                if (!trial_run_on_device(trial, device, caps[i]))
                        return false;
                if (!trial_same_values(trial, caps[i], finding) ||
                    !trial_near_statistics(trial, device->results, caps[i], finding))
                        return false;
                if (i > 0 && memcmp(words, device->results, bytes) != 0) {
                        trial_name(trial, finding, 0, caps[i]);
                        find_note(finding, "the statistics are others than with at most %u blocks", caps[0]);
                        return false;
                }
                memcpy(words, device->results, bytes);
        }
        return true;
}

/* ---- questions ---- */

static const unsigned some_inputs[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 17 };
#define SOME_INPUTS (sizeof some_inputs / sizeof *some_inputs)

static bool values_check(struct device *device, const struct question *question, unsigned k, unsigned shape,
                         bool tame, struct finding *finding) {
        static const uint64_t lengths[PARTS] = { 0, 1, 2, 3, 7, 8, 17, 255, 1023, 4099 };
        const unsigned caps[] = { 0, 3 };
        struct trial trial = { .dtype = question->dtype, .reduce = question->reduce, .k = k };
        size_t size = dtype_size(question->dtype);

        if (shape == 0)
                for (unsigned p = 0; p < PARTS; p++)
                        trial_add(&trial, lengths[p], p % 3 == 1 ? size : 0, (p + k) % 2);
        else
                trial_add(&trial, GRID_ROUND_BYTES * 5 / 2 / size - (shape - 1), 0, shape == 2);
        type_fill(question->dtype, tame, before, trial.bytes);
        return trial_check(&trial, device, caps, 2, finding);
}

/* An odd length, and one that is not, of more than one chunk: for k with a kernel of its own, and others. */
void ask_values(struct device *device, const struct question *question, struct finding *finding) {
        bool good = device_room(device, BUFFER);

        for (unsigned tame = 0; tame < 2; tame++) {
                for (size_t i = 0; i < SOME_INPUTS && good; i++)
                        good = values_check(device, question, some_inputs[i], 0, tame, finding);
                good = good && values_check(device, question, 2, 1, tame, finding) &&
                       values_check(device, question, 9, 2, tame, finding);
        }
        if (good)
                find_note(finding, "1 to 9 and 17 inputs, 12 lengths from 0 elements to 80 KiB, aligned and "
                                   "not, any bits and finite ones, any number of blocks and at most 3");
        find_answer(finding, good ? "yes" : "no");
}

/* All 65536 values, which are rounded on the way. */
void ask_conversions(struct device *device, const struct question *question, struct finding *finding) {
        struct trial trial = { .dtype = question->dtype, .reduce = WIRE__REDUCE__SUM, .k = 1 };
        const unsigned caps[] = { 0 };
        bool good = device_room(device, BUFFER);

        trial_add(&trial, 65536, 0, false);
        for (uint32_t i = 0; i < 65536; i++)
                memcpy(before + trial.in[0][0] + (size_t)2 * i, &(uint16_t){ (uint16_t)i }, 2);
        good = good && trial_check(&trial, device, caps, 1, finding);
        trial.reduce = WIRE__REDUCE__AVG;
        good = good && trial_check(&trial, device, caps, 1, finding);
        if (good)
                find_note(finding, "all 65536 values, times 1 and times 1/2");
        find_answer(finding, good ? "yes" : "no");
}

/* More chunks than a warp has lanes, and each number of blocks shares them out in another way. */
void ask_statistics(struct device *device, const struct question *question, struct finding *finding) {
        static const struct { unsigned k, rounds; } shapes[] = { { 1, 70 }, { 2, 70 }, { 8, 40 }, { 9, 7 } };
        const unsigned caps[] = { 0, 1, 2, 7, 33 };
        bool good = device_room(device, BUFFER);

        for (unsigned i = 0; i < 8 && good; i++) {
                struct trial trial = { .dtype = question->dtype,
                                       .reduce = WIRE__REDUCE__AVG,
                                       .k = shapes[i / 2].k };
                trial_add(&trial, shapes[i / 2].rounds * GRID_ROUND_BYTES / dtype_size(question->dtype) - 3,
                          0, false);
                type_fill(question->dtype, i % 2 == 0, before, trial.bytes);
                good = trial_check(&trial, device, caps, 5, finding);
        }
        if (good)
                find_note(finding,
                          "1, 2, 8 and 9 inputs of up to 70 chunks: the same bits with at most 1, 2, "
                          "7 and 33 blocks and with any number, within 1e-12 of the host's");
        find_answer(finding, good ? "yes" : "no");
}

/* One element that is not finite, or two, or none. */
void ask_find(struct device *device, const struct question *question, struct finding *finding) {
        size_t size = dtype_size(question->dtype);
        uint64_t elements = 5 * GRID_ROUND_BYTES / size - 1;
        const uint64_t places[] = {
                elements, 0, elements - 1, elements / 2, GRID_ROUND_BYTES / size, elements / 3, elements - 2
        };
        const unsigned caps[] = { 0, 1, 2 };
        bool good = device_room(device, BUFFER);

        for (size_t i = 0; i < sizeof places / sizeof *places && good; i++) {
                struct trial trial = { .dtype = question->dtype, .k = 1, .find = true };
                trial_add(&trial, elements, 0, false);
                type_fill(question->dtype, true, before, trial.bytes);
                for (unsigned n = 0; n < 2 && places[i] < elements; n++)
                        memset(before + trial.in[0][0] + (n == 0 ? places[i] : elements - 1) * size,
                               n == 0 || i % 2 == 0 ? 0xff : 0, size);
                good = trial_check(&trial, device, caps, 3, finding);
                if (good && device->results[0] != (i == 0 ? UINT64_MAX : places[i])) {
                        trial_name(&trial, finding, 0, caps[2]);
                        find_note(finding, "found at %llu instead of %llu",
                                  (unsigned long long)device->results[0], (unsigned long long)places[i]);
                        good = false;
                }
        }
        if (good)
                find_note(finding, "none, the first, the last, and between, among %llu elements",
                          (unsigned long long)elements);
        find_answer(finding, good ? "yes" : "no");
}

/* Comes after all others. */
void ask_kernels(struct device *device, const struct question *question, struct finding *finding) {
        unsigned n = 0;

        for (unsigned i = 0; i < GRID_KERNELS; i++) {
                n += device->launched[i];
                if (!device->launched[i])
                        find_note(finding, "%s was not launched; ", launch_names[i]);
        }
        find_note(finding, "%u of %u were launched", n, (unsigned)GRID_KERNELS);
        find_answer(finding, n == GRID_KERNELS ? "yes" : "no");
}
