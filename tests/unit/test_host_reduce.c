/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of the host backend against an oracle: scalar code that converts 16-bit floats by arithmetic of
 * its own and adds one element after the other. Results must have the same bits (any NaN equals any other),
 * on every instruction set of this machine and with any number of workers; statistics too.
 */
#include "cpu_flags.h"
#include "halves.h"
#include "host_fixture.h"
#include "tests.h"

#include <float.h>

#include "base/cleanup.h"
#include "kernel/kernel.h"

#define MEMBERS 8u
/* bytes kept for the input, and as many for the output, of each member */
#define RANGE (3u << 20)
#define GUARD 64u
#define ARENA (2 * RANGE + ARENA_PAGE)
/* Elements from which only one of the four ways (in place or not, with NaNs and the like or not) is tried:
 * the oracle is slow, and slower still under the thread sanitizer. */
#ifdef __SANITIZE_THREAD__
#define LONG 0u
#else
#define LONG 2000u
#endif

static const char *const sets[] = { "baseline", "avx2", "avx512" };
static const unsigned dtypes[] = { WIRE__DTYPE__F32, WIRE__DTYPE__F64, WIRE__DTYPE__F16, WIRE__DTYPE__BF16,
                                   WIRE__DTYPE__I32, WIRE__DTYPE__I64, WIRE__DTYPE__U8 };
static const unsigned reduces[] = { WIRE__REDUCE__AVG, WIRE__REDUCE__SUM, WIRE__REDUCE__MIN,
                                    WIRE__REDUCE__MAX, WIRE__REDUCE__PROD };

struct bench { /* one open backend with its members */
        struct done done;
        struct backend *backend;
        struct member member[MEMBERS];
        unsigned char *before[MEMBERS]; /* inputs as they were */
        bool uncached;
        uint64_t first, seed, id;
};

struct shape {
        unsigned dtype, reduce, members;
        size_t elements;
        bool in_place, special;
};

/* ---- the oracle ---- */

static bool dtype_is_float(unsigned dtype) {
        return dtype == WIRE__DTYPE__F32 || dtype == WIRE__DTYPE__F64 || dtype == WIRE__DTYPE__F16 ||
               dtype == WIRE__DTYPE__BF16;
}

static float half_table[65536]; /* half_value() of all f16, made once: it is slow */

/* Element i as a double: exact for every float type. */
static double float_load(unsigned dtype, const void *from, size_t i) {
        switch (dtype) {
        case WIRE__DTYPE__F32: return ((const float *)from)[i];
        case WIRE__DTYPE__F64: return ((const double *)from)[i];
        case WIRE__DTYPE__F16: return half_table[((const uint16_t *)from)[i]];
        default: {
                uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
                float value;
                memcpy(&value, &bits, sizeof value);
                return value;
        }
        }
}

static void float_store(unsigned dtype, void *to, size_t i, double value) {
        if (dtype == WIRE__DTYPE__F32)
                ((float *)to)[i] = (float)value;
        else if (dtype == WIRE__DTYPE__F64)
                ((double *)to)[i] = value;
        else if (dtype == WIRE__DTYPE__F16)
                ((uint16_t *)to)[i] = half_bits(&halves[0], value);
        else
                ((uint16_t *)to)[i] = half_bits(&halves[1], value);
}

#define COMBINE(a, b, reduce)                                                                                \
        ((reduce) == WIRE__REDUCE__PROD  ? (a) * (b)                                                         \
         : (reduce) == WIRE__REDUCE__MIN ? (isnan(b) || (b) < (a) ? (b) : (a))                               \
         : (reduce) == WIRE__REDUCE__MAX ? (isnan(b) || (b) > (a) ? (b) : (a))                               \
                                         : (a) + (b))

/* min and max: a NaN that is in stays in, as no comparison with it holds. */
static double float_expect(const struct shape *shape, unsigned char *const inputs[], size_t i) {
        bool avg = shape->reduce == WIRE__REDUCE__AVG;
        if (shape->dtype == WIRE__DTYPE__F64) {
                double scale = 1.0 / shape->members, acc = 0;
                for (unsigned j = 0; j < shape->members; j++) {
                        double value = float_load(shape->dtype, inputs[j], i) * (avg ? scale : 1);
                        acc = j == 0 ? value : COMBINE(acc, value, shape->reduce);
                }
                return acc;
        }
        float scale = (float)(1.0 / shape->members), acc = 0;
        for (unsigned j = 0; j < shape->members; j++) {
                float value = (float)float_load(shape->dtype, inputs[j], i) * (avg ? scale : 1);
                acc = j == 0 ? value : COMBINE(acc, value, shape->reduce);
        }
        return acc;
}

static int64_t integer_load(unsigned dtype, const void *from, size_t i) {
        return dtype == WIRE__DTYPE__I32   ? ((const int32_t *)from)[i]
               : dtype == WIRE__DTYPE__I64 ? ((const int64_t *)from)[i]
                                           : ((const uint8_t *)from)[i];
}

/* Wrapping in 64 bits and cutting at the end is wrapping in the type. */
static int64_t integer_expect(const struct shape *shape, unsigned char *const inputs[], size_t i) {
        int64_t acc = integer_load(shape->dtype, inputs[0], i);
        for (unsigned j = 1; j < shape->members; j++) {
                int64_t value = integer_load(shape->dtype, inputs[j], i);
                if (shape->reduce == WIRE__REDUCE__SUM)
                        acc = (int64_t)((uint64_t)acc + (uint64_t)value);
                else if (shape->reduce == WIRE__REDUCE__PROD)
                        acc = (int64_t)((uint64_t)acc * (uint64_t)value);
                else if (shape->reduce == WIRE__REDUCE__MIN ? value < acc : value > acc)
                        acc = value;
        }
        return acc;
}

/* ---- inputs ---- */

static double special_float(uint64_t pick, unsigned dtype) {
        static const double common[] = { 0.0, -0.0, INFINITY, -INFINITY, NAN, 1.0, -1.0 };
        static const double f32[] = { FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-149, -0x1.8p-140, 0x1p-127 };
        static const double f64[] = { DBL_MAX, -DBL_MAX, DBL_MIN, 0x1p-1074, -0x1.8p-1060, 1e200 };
        static const double f16[] = { 65504, -65504, 0x1p-14, 0x1p-24, -0x1.8p-20, 32752 };
        const double *own = dtype == WIRE__DTYPE__F64 ? f64 : dtype == WIRE__DTYPE__F16 ? f16 : f32;
        return pick % 13 < 7 ? common[pick % 13] : own[pick % 13 - 7];
}

#define POOL 65521u /* elements; a prime, so that no two slices of a task are alike */

/* Elements of each type, without NaNs and the like, and with some: made once. */
static unsigned char pool[2][array_size(dtypes)][POOL * 8];

static void pool_fill(unsigned char *to, unsigned dtype, bool special, uint64_t *seed) {
        int spread = dtype == WIRE__DTYPE__F16 ? 12 : 24;
        for (size_t i = 0; i < POOL; i++) {
                uint64_t bits = random_next(seed);
                double value = ldexp((double)(int64_t)bits,
                                     (int)((bits >> 20 & 0xff) % (unsigned)spread) - 63 - spread / 2);
                if (special && (bits >> 40) % 32 == 0)
                        value = special_float(bits >> 50, dtype);
                if (dtype_is_float(dtype))
                        float_store(dtype, to, i, value);
                else
                        memcpy(to + i * kernel_size(dtype), &bits, kernel_size(dtype));
        }
}

static int make_tables(void **state) {
        static uint64_t seed;
        if (seed != 0)
                return 0;
        seed = 88172645463325252u;
        for (unsigned i = 0; i < 65536; i++)
                half_table[i] = (float)half_value(&halves[0], (uint16_t)i);
        for (unsigned d = 0; d < array_size(dtypes); d++)
                for (unsigned special = 0; special < 2; special++)
                        pool_fill(pool[special][d], dtypes[d], special, &seed);
        return 0;
}

#define TEST(name) TEST_WITH(name, make_tables, NULL)

static const unsigned char *pool_of(unsigned dtype, bool special) {
        unsigned d = 0;
        while (dtypes[d] != dtype)
                d++;
        return pool[special][d];
}

/* From anywhere in the pool on. */
static void draw(struct bench *bench, const struct shape *shape, unsigned char *to) {
        const unsigned char *from = pool_of(shape->dtype, shape->special);
        size_t size = kernel_size(shape->dtype), at = random_next(&bench->seed) % POOL, n;
        for (size_t left = shape->elements; left > 0; left -= n, to += n * size, at = 0) {
                n = left < POOL - at ? left : POOL - at;
                memcpy(to, from + at * size, n * size);
        }
}

static void fill(struct bench *bench, const struct shape *shape) {
        size_t bytes = shape->elements * kernel_size(shape->dtype);
        for (unsigned j = 0; j < shape->members; j++) {
                struct member *member = &bench->member[j];
                if (shape->members > 2 && j == shape->elements % shape->members)
                        memset(member->map, 0, bytes); /* an absent member */
                else
                        draw(bench, shape, member->map);
                memcpy(bench->before[j], member->map, bytes);
                memset(member->map + bytes, 0xa5, GUARD);
                memset(member->map + RANGE, 0xa5, bytes + GUARD);
        }
}

/* ---- comparison ---- */

static bool same(unsigned dtype, const void *a, const void *b, size_t i) {
        size_t size = kernel_size(dtype);
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) == 0)
                return true;
        return dtype_is_float(dtype) && isnan(float_load(dtype, a, i)) && isnan(float_load(dtype, b, i));
}

static void check_values(const struct bench *bench, const struct shape *shape, const unsigned char *output) {
        for (size_t i = 0; i < shape->elements; i++) {
                _Alignas(8) unsigned char expected[8];
                size_t size = kernel_size(shape->dtype);
                if (dtype_is_float(shape->dtype)) {
                        float_store(shape->dtype, expected, 0, float_expect(shape, bench->before, i));
                } else {
                        int64_t value = integer_expect(shape, bench->before, i);
                        memcpy(expected, &value, sizeof value);
                }
                if (!same(shape->dtype, output + i * size, expected, 0))
                        fail_msg("dtype %u reduce %u members %u elements %zu: element %zu differs",
                                 shape->dtype, shape->reduce, shape->members, shape->elements, i);
        }
}

/* All outputs have the same bytes, nothing behind them was written, and inputs beside them are as before. */
static void check_places(const struct bench *bench, const struct shape *shape) {
        size_t bytes = shape->elements * kernel_size(shape->dtype), at = shape->in_place ? 0 : RANGE;
        unsigned char guard[GUARD];
        memset(guard, 0xa5, GUARD);
        for (unsigned j = 0; j < shape->members; j++) {
                const unsigned char *map = bench->member[j].map;
                assert_memory_equal(map + at, bench->member[0].map + at, bytes);
                assert_memory_equal(map + bytes, guard, GUARD);
                assert_memory_equal(map + RANGE + bytes, guard, GUARD);
                if (!shape->in_place)
                        assert_memory_equal(map, bench->before[j], bytes);
        }
}

static void check_sum(const struct shape *shape, const void *values, double sum) {
        long double exact = 0;
        for (size_t i = 0; i < shape->elements && isfinite(exact); i++) {
                long double value = float_load(shape->dtype, values, i);
                exact += value * value;
        }
        if (!isfinite(exact) || exact > (long double)DBL_MAX)
                assert_false(isfinite(sum));
        else
                assert_true(fabsl((long double)sum - exact) <= 1e-12L * exact + 1e-300L);
}

static void check_statistics(const struct bench *bench, const struct shape *shape) {
        unsigned last = bench->done.n - 1;
        const unsigned char *output = bench->member[0].map + (shape->in_place ? 0 : RANGE);
        assert_int_equal(bench->done.at[last].n_inputs, shape->members);
        for (unsigned j = 0; j < shape->members; j++) {
                uint64_t nonfinite = 0;
                for (size_t i = 0; dtype_is_float(shape->dtype) && i < shape->elements; i++)
                        nonfinite += !isfinite(float_load(shape->dtype, bench->before[j], i));
                assert_int_equal(bench->done.at[last].nonfinite[j], nonfinite);
                if (dtype_is_float(shape->dtype))
                        check_sum(shape, bench->before[j], bench->done.at[last].input_sums[j]);
                else
                        assert_true(bench->done.at[last].input_sums[j] == 0);
        }
        if (dtype_is_float(shape->dtype))
                check_sum(shape, output, bench->done.at[last].sum_squares);
        else
                assert_true(bench->done.at[last].sum_squares == 0);
}

/* ---- running ---- */

static void bench_open(struct bench *bench, const char *set, unsigned workers) {
        assert_int_equal(setenv("GRADSYNC_SIMD", set, 1), 0);
        memset(bench, 0, sizeof *bench);
        bench->seed = 88172645463325252u;
        bench->backend = fixture_open(workers, &bench->done);
        assert_string_equal(bench->backend->ops->simd(bench->backend), set);
        for (unsigned j = 0; j < MEMBERS; j++) {
                bench->member[j] = member_new(bench->backend, ARENA);
                bench->before[j] = malloc(RANGE);
                assert_non_null(bench->before[j]);
        }
}

static void bench_close(struct bench *bench) {
        for (unsigned j = 0; j < MEMBERS; j++) {
                member_free(bench->backend, &bench->member[j]);
                free(bench->before[j]);
        }
        assert_null(bench->backend->ops->close(bench->backend));
        unsetenv("GRADSYNC_SIMD");
}

/* Runs a test with a bench of each set that this machine has. */
static void each_set(unsigned workers, void (*test)(struct bench *bench, unsigned set)) {
        struct bench *bench = malloc(sizeof *bench);
        for (unsigned s = 0; s < array_size(sets); s++) {
                if (!kernel_find(sets[s]))
                        continue;
                bench_open(bench, sets[s], workers);
                test(bench, s);
                bench_close(bench);
        }
        free(bench);
}

static void place(const struct bench *bench, const struct shape *shape, struct backend_range *inputs,
                  struct backend_range *outputs) {
        for (unsigned j = 0; j < shape->members; j++) {
                inputs[j] = (struct backend_range){ bench->member[j].arena, 0 };
                outputs[j] = (struct backend_range){ bench->member[j].arena, shape->in_place ? 0 : RANGE };
        }
}

static void reduce(struct bench *bench, const struct shape *shape) {
        struct backend_range inputs[MEMBERS], outputs[MEMBERS];
        struct backend_task task = {
                .id = ++bench->id,
                .turn = 1,
                .dtype = shape->dtype,
                .reduce = shape->reduce,
                .divisor = shape->members,
                .first = bench->first,
                .elements = shape->elements - bench->first,
                .n_inputs = shape->reduce == WIRE__REDUCE__REDUCE_NONE ? 1 : shape->members,
                .n_outputs = shape->members,
                .inputs = inputs,
                .outputs = outputs,
                .statistics = true,
                .uncached = bench->uncached,
        };
        place(bench, shape, inputs, outputs);
        bench->done.n = 0;
        fixture_run(bench->backend, &bench->done, &task);
}

static void reduce_and_check(struct bench *bench, const struct shape *shape) {
        fill(bench, shape);
        reduce(bench, shape);
        check_values(bench, shape, bench->member[0].map + (shape->in_place ? 0 : RANGE));
        check_places(bench, shape);
        check_statistics(bench, shape);
}

static void each_reduce(struct bench *bench, unsigned dtype, size_t elements, unsigned members) {
        for (unsigned r = 0; r < array_size(reduces); r++)
                for (unsigned mode = 0; mode < 4; mode++) {
                        struct shape shape = { dtype, reduces[r], members, elements, mode & 1, mode & 2 };
                        if (reduces[r] == WIRE__REDUCE__AVG && !dtype_is_float(dtype))
                                continue;
                        if (elements > 200000 && r != elements % array_size(reduces))
                                continue;
                        if (elements > LONG && mode != (elements + members + r) % 4)
                                continue;
                        reduce_and_check(bench, &shape);
                }
}

/* How a task is cut does not depend on the set: the largest ones are cut with one. */
static void run_set(const char *set, const char *flags) {
        static const size_t lengths[] = { 1, 2, 3, 7, 15, 16, 17, 31, 63, 65, 511, 512, 513, 1025 };
        struct bench *bench;
        unsigned n_borders = strcmp(set, kernel_find(NULL)->name) == 0 ? 7 : 4;
        if (!cpu_has_all(flags))
                skip();
        bench = malloc(sizeof *bench);
        bench_open(bench, set, 2);
        for (unsigned d = 0; d < array_size(dtypes); d++) {
                size_t slice = KERNEL_SLICE_SMALL / kernel_size(dtypes[d]),
                       large = KERNEL_SMALL_TASK / kernel_size(dtypes[d]);
                const size_t borders[] = { slice - 1,       slice, slice + 1, 2 * slice + 1025,
                                           13 * slice + 17, large, large + 1 };
                for (unsigned members = 1; members <= MEMBERS; members++)
                        for (unsigned i = 0; i < array_size(lengths); i++)
                                each_reduce(bench, dtypes[d], lengths[i], members);
                for (unsigned i = 0; i < n_borders; i++)
                        each_reduce(bench, dtypes[d], borders[i], (3 * i + d) % MEMBERS + 1);
        }
        bench_close(bench);
        free(bench);
}

TEST(test_baseline) {
        run_set("baseline", "");
}

TEST(test_avx2) {
        run_set("avx2", "avx2 fma f16c");
}

TEST(test_avx512) {
        run_set("avx512", "avx2 fma f16c avx512f avx512bw avx512dq avx512vl");
}

static void every_half(struct bench *bench, unsigned set) {
        for (unsigned d = 2; d < 4; d++)
                for (unsigned delta = 0; delta < 4; delta++) {
                        struct shape shape = { dtypes[d], WIRE__REDUCE__AVG, 2, 65536, true, false };
                        for (unsigned i = 0; i < 65536; i++) {
                                uint16_t a = (uint16_t)i, b = (uint16_t)(i + delta * (delta == 3 ? 777 : 1));
                                memcpy(bench->member[0].map + 2 * i, &a, 2);
                                memcpy(bench->member[1].map + 2 * i, &b, 2);
                        }
                        for (unsigned j = 0; j < 2; j++)
                                memcpy(bench->before[j], bench->member[j].map, 131072);
                        reduce(bench, &shape);
                        check_values(bench, &shape, bench->member[1].map);
                }
}

/* Every 16-bit value is converted, and rounded back from the f32 values between and around it. */
TEST(test_every_half) {
        each_set(1, every_half);
}

static void repeat_statistics(struct bench *bench, unsigned set) {
        static bool begun;
        static struct done first[4];
        for (unsigned d = 0; d < 4; d++) {
                /* large slices and small ones */
                size_t bytes = (d % 2 ? 9 : 5) * KERNEL_SLICE_BYTES;
                size_t elements = bytes / kernel_size(dtypes[d]) + 1041;
                struct shape shape = { dtypes[d], WIRE__REDUCE__AVG, 5, elements, true, false };
                fill(bench, &shape);
                reduce(bench, &shape);
                if (!begun)
                        first[d].at[0] = bench->done.at[0];
                assert_memory_equal(first[d].at[0].input_sums, bench->done.at[0].input_sums,
                                    5 * sizeof(double));
                assert_memory_equal(&first[d].at[0].sum_squares, &bench->done.at[0].sum_squares,
                                    sizeof(double));
                assert_true(bench->done.at[0].sum_squares > 0);
        }
        begun = true;
}

/* The same inputs give the same bits of every sum, whatever adds them up. */
TEST(test_statistics_repeat) {
        each_set(1, repeat_statistics);
        each_set(3, repeat_statistics);
}

/* One input to all outputs, bit for bit, NaNs included; the output that is the input stays. */
TEST(test_copy) {
        static const size_t lengths[] = { 1, 17, 1025, 40000, 100003 };
        struct bench *bench = malloc(sizeof *bench);
        bench_open(bench, "baseline", 2);
        for (unsigned d = 0; d < array_size(dtypes); d++)
                for (unsigned i = 0; i < array_size(lengths); i++)
                        for (unsigned place = 0; place < 2; place++) {
                                struct shape shape = { dtypes[d], WIRE__REDUCE__REDUCE_NONE,
                                                       MEMBERS,   lengths[i],
                                                       place,     true };
                                size_t bytes = lengths[i] * kernel_size(dtypes[d]);
                                fill(bench, &shape);
                                reduce(bench, &shape);
                                assert_memory_equal(bench->member[0].map + (place ? 0 : RANGE),
                                                    bench->before[0], bytes);
                                check_places(bench, &shape);
                                if (dtype_is_float(dtypes[d]))
                                        check_sum(&shape, bench->before[0], bench->done.at[0].sum_squares);
                        }
        bench_close(bench);
        free(bench);
}

/* The input changes between two outputs: here because it lies in the first one. */
TEST(test_copy_reads_once) {
        enum { BYTES = 2048, SHIFT = 64 };
        unsigned char shared[SHIFT + BYTES], second[BYTES], third[BYTES], before[BYTES];
        const unsigned char *inputs[] = { shared };
        unsigned char *outputs[] = { shared + SHIFT, second, third };
        for (unsigned n = 2; n <= 3; n++) {
                struct kernel_slice slice = {
                        .inputs = inputs, .outputs = outputs, .n_inputs = 1, .n_outputs = n, .elements = BYTES
                };
                for (unsigned i = 0; i < BYTES; i++)
                        shared[i] = before[i] = (unsigned char)(i * 7 + i / 256);
                kernel_find("baseline")->copy[WIRE__DTYPE__U8](&slice);
                for (unsigned i = 0; i < n; i++)
                        assert_memory_equal(outputs[i], before, BYTES);
        }
}

static void copy_uncached(struct bench *bench, unsigned dtype, size_t elements, size_t first) {
        struct shape shape = { dtype, WIRE__REDUCE__REDUCE_NONE, 3, elements, false, true };
        size_t skip = first * kernel_size(dtype);
        bench->first = first;
        fill(bench, &shape);
        reduce(bench, &shape);
        bench->first = 0;
        for (unsigned j = 0; j < 3; j++)
                assert_memory_equal(bench->member[j].map + RANGE + skip, bench->before[0] + skip,
                                    elements * kernel_size(dtype) - skip);
        check_places(bench, &shape);
        if (dtype_is_float(dtype) && first == 0)
                check_sum(&shape, bench->before[0], bench->done.at[0].sum_squares);
}

static void go_around_caches(struct bench *bench, unsigned set) {
        bench->uncached = true;
        for (unsigned d = 0; d < array_size(dtypes); d++) {
                size_t elements = KERNEL_LARGE_TASK / kernel_size(dtypes[d]) + 1037;
                each_reduce(bench, dtypes[d], elements, 1);
                each_reduce(bench, dtypes[d], elements, 2 + d % 4);
                copy_uncached(bench, dtypes[d], elements, 0);
                copy_uncached(bench, dtypes[d], elements, 3 + d);
        }
}

/* Around the caches, wherever the outputs begin: the same elements and sums, and nothing beside them. */
TEST(test_uncached) {
        each_set(2, go_around_caches);
}

/* Cut anywhere where a range may begin: the same elements, and counts that add up. */
static void reduce_in_pieces(struct bench *bench, const struct shape *shape, size_t piece) {
        struct backend_range inputs[MEMBERS], outputs[MEMBERS];
        struct backend_task task = {
                .turn = 1,
                .dtype = shape->dtype,
                .reduce = shape->reduce,
                .divisor = shape->members,
                .n_inputs = shape->members,
                .n_outputs = shape->members,
                .inputs = inputs,
                .outputs = outputs,
                .statistics = true,
        };
        unsigned n = 0;
        place(bench, shape, inputs, outputs);
        bench->done.n = 0;
        for (task.first = 0; task.first < shape->elements; task.first += piece) {
                size_t left = shape->elements - task.first;
                task.id = ++bench->id;
                task.elements = left < piece ? left : piece;
                fixture_run(bench->backend, &bench->done, &task);
        }
        for (unsigned j = 0; j < shape->members; j++, n = 0) {
                for (unsigned i = 0; i < bench->done.n; i++)
                        n += (unsigned)bench->done.at[i].nonfinite[j];
                assert_int_equal(n, j + 1);
        }
}

TEST(test_pieces) {
        static const size_t pieces[] = { 64, 4096, 70016, 1u << 20 };
        struct bench *bench = malloc(sizeof *bench);
        bench_open(bench, "baseline", 2);
        for (unsigned d = 0; d < 4; d++)
                for (unsigned i = 0; i < array_size(pieces); i++) {
                        struct shape shape = { dtypes[d], WIRE__REDUCE__AVG, 3, i == 0 ? 1000 : 140001, false,
                                               false };
                        fill(bench, &shape);
                        for (unsigned j = 0; j < 3; j++)
                                for (unsigned at = 0; at <= j; at++)
                                        float_store(shape.dtype, bench->member[j].map,
                                                    at * (shape.elements / 3), NAN);
                        reduce(bench, &shape);
                        memcpy(bench->before[0], bench->member[0].map + RANGE,
                               shape.elements * kernel_size(shape.dtype));
                        memset(bench->member[0].map + RANGE, 0, shape.elements * kernel_size(shape.dtype));
                        reduce_in_pieces(bench, &shape, pieces[i]);
                        assert_memory_equal(bench->before[0], bench->member[0].map + RANGE,
                                            shape.elements * kernel_size(shape.dtype));
                }
        bench_close(bench);
        free(bench);
}

static void measure_results(struct bench *bench, unsigned set) {
        for (unsigned d = 0; d < 4; d++) {
                struct shape shape = {
                        dtypes[d], WIRE__REDUCE__AVG, 3, set == 1 ? 300 : 390003, true, false
                };
                size_t bytes = shape.elements * kernel_size(shape.dtype);
                struct backend_range range;
                struct backend_task task = { .dtype = shape.dtype,
                                             .reduce = WIRE__REDUCE__REDUCE_NONE,
                                             .elements = shape.elements,
                                             .n_inputs = 1,
                                             .inputs = &range,
                                             .statistics = true };
                fill(bench, &shape);
                reduce(bench, &shape);
                memcpy(bench->before[0], bench->member[0].map, bytes);
                for (unsigned j = 0; j < 3; j++) {
                        range = (struct backend_range){ bench->member[j].arena, 0 };
                        task.id = ++bench->id;
                        fixture_run(bench->backend, &bench->done, &task);
                        assert_memory_equal(&bench->done.at[0].sum_squares,
                                            &bench->done.at[1 + j].sum_squares, sizeof(double));
                        assert_int_equal(bench->done.at[1 + j].nonfinite[0], 0);
                }
                assert_true(bench->done.at[0].sum_squares > 0);
                assert_memory_equal(bench->before[0], bench->member[0].map, bytes);
                float_store(shape.dtype, bench->member[2].map, shape.elements - 1, INFINITY);
                task.id = ++bench->id;
                fixture_run(bench->backend, &bench->done, &task);
                assert_int_equal(bench->done.at[4].nonfinite[0], 1);
        }
}

/* A copy without an output writes nothing, and says of a result what the reduction said that has made it. */
TEST(test_statistics_of_a_result) {
        each_set(2, measure_results);
}

/* Many inputs, more than any special case takes, and a divisor that is not their number. */
MEMBER_TEST(test_world, 2, LIMIT_LOCAL *ARENA_PAGE) {
        struct backend_range ranges[LIMIT_LOCAL];
        struct backend_task task = task_on(ranges, LIMIT_LOCAL, WIRE__DTYPE__F32, WIRE__REDUCE__AVG, 1000);
        float expected[1000] = { 0 };
        task.divisor = 100;
        for (unsigned j = 0; j < LIMIT_LOCAL; j++) {
                float *values = (float *)(void *)(member->map + j * ARENA_PAGE);
                ranges[j] = (struct backend_range){ member->arena, j * ARENA_PAGE };
                for (unsigned i = 0; i < 1000; i++) {
                        values[i] = (float)(j * 1000 + i) * 0.37f;
                        expected[i] = j == 0 ? values[i] * 0.01f : expected[i] + values[i] * 0.01f;
                }
        }
        fixture_run(backend, done, &task);
        for (unsigned j = 0; j < LIMIT_LOCAL; j++)
                assert_memory_equal(member->map + j * ARENA_PAGE, expected, sizeof expected);
        assert_true(done->at[0].sum_squares == 0); /* none were asked for */
}

MEMBER_TEST(test_refused, 1, 4 * ARENA_PAGE) {
        struct backend_range range = { member->arena, 0 };
        struct backend_task good = task_on(&range, 1, WIRE__DTYPE__I32, WIRE__REDUCE__SUM, 10);
        struct backend_task bad[] = { good, good, good, good, good, good, good };
        struct backend_result result;
        bad[0].reduce = WIRE__REDUCE__AVG; /* integers have no average */
        bad[1].dtype = 99;
        bad[2].reduce = 99;
        bad[3].n_inputs = 0;
        bad[4].n_outputs = LIMIT_LOCAL + 1;
        bad[5].dtype = WIRE__DTYPE__F32, bad[5].reduce = WIRE__REDUCE__AVG, bad[5].divisor = 0;
        bad[6].n_outputs = 0; /* only a copy measures without one */
        assert_int_equal(backend->compute->submit(backend, &good, &result), 1);
        for (unsigned i = 0; i < array_size(bad); i++)
                assert_int_equal(backend->compute->submit(backend, &bad[i], &result), -EINVAL);
}
