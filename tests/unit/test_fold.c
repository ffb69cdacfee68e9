/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions between nodes, against a reference that counts in another way; each set gives the same bits.
 */
#include "cpu_flags.h"
#include "halves.h"
#include "tests.h"

#include "kernel/kernel.h"
#include "proto/cleanup.h"

#define ALL 65536u

/* All sets of kernels, the first of which every CPU has. */
static const char *const sets[] = { "baseline", "avx2", "avx512" };

/* By the kernels of a set; NULL: the best one. */
static void fold(const char *set, unsigned dtype, unsigned op, void *result, const void *a, const void *b,
                 size_t n) {
        kernel_fold(kernel_find(set)->fold[dtype][op], kernel_size(dtype), result, a, b, n);
}

/* ---- 16-bit floats ---- */

static float half_apply(unsigned op, float a, float b) {
        switch (op) {
        case KERNEL_ADD: return a + b;
        case KERNEL_MUL: return a * b;
        case KERNEL_MIN: return b < a ? b : a;
        default: return b > a ? b : a;
        }
}

/* One NaN: that one, quiet; two: the first. */
static uint16_t half_fold(const struct half *half, unsigned op, uint16_t a, uint16_t b) {
        uint16_t quiet = 1u << (half->fraction - 1);
        float x = (float)half_value(half, a), y = (float)half_value(half, b), z;

        if (isnan(x) || isnan(y))
                return (isnan(x) ? a : b) | quiet;
        z = half_apply(op, x, y);
        if (isnan(z)) /* infinities against each other, or zero times infinity: as the CPU makes it */
                return UINT16_MAX;
        return half_bits(half, z);
}

static bool half_is_nan(const struct half *half, uint16_t bits) {
        return isnan(half_value(half, bits));
}

/* Zeros, the ends of each range, ones that meet in the middle of two, infinities, NaNs of both kinds. */
static size_t partners(const struct half *half, uint16_t *ret) {
        uint16_t one = (uint16_t)(-half->least + 1) << half->fraction,
                 infinity = 0x8000 - (1u << half->fraction);
        uint16_t some[] = { 0,
                            1,
                            (1u << half->fraction) - 1,
                            1u << half->fraction,
                            one - (1u << half->fraction),
                            one,
                            one + 1,
                            one + (1u << half->fraction) + 3,
                            infinity - 1,
                            infinity,
                            infinity + 1,
                            0x7fff,
                            0x1234 };
        size_t n = sizeof(some) / sizeof(*some);

        for (size_t i = 0; i < n; i++) {
                ret[2 * i] = some[i];
                ret[2 * i + 1] = some[i] | 0x8000;
        }
        return 2 * n;
}

static void check_halves(const struct half *half, unsigned op, uint16_t partner, const char *set) {
        static uint16_t a[ALL], b[ALL], got[ALL];

        for (unsigned i = 0; i < ALL; i++) {
                a[i] = (uint16_t)i;
                b[i] = partner;
        }
        fold(set, half->dtype, op, got, a, b, ALL);
        for (unsigned i = 0; i < ALL; i++) {
                uint16_t wanted = half_fold(half, op, a[i], b[i]);

                if (wanted == UINT16_MAX ? !half_is_nan(half, got[i]) : got[i] != wanted)
                        fail_msg("%s, type %u, operation %u: %04x, %04x gives %04x, not %04x", set,
                                 half->dtype, op, a[i], b[i], got[i], wanted);
        }
}

TEST_ALONE(halves_are_rounded_to_nearest_even_and_of_two_nans_the_first_stays) {
        uint16_t partner[64];

        for (unsigned i = 0; i < 2 * array_size(sets); i++)
                for (size_t n = partners(&halves[i % 2], partner);
                     n-- > 0 && kernel_find(sets[i / 2]) != NULL;)
                        for (unsigned op = 0; op < KERNEL_OPS; op++)
                                check_halves(&halves[i % 2], op, partner[n], sets[i / 2]);
}

/* Against all partners, but the ones of a value are others each time. */
static void check_same_halves(const char *set) {
        static uint16_t a[ALL], b[ALL], plain[ALL], got[ALL];

        for (unsigned round = 0; round < 256 * 2 * KERNEL_OPS; round++) {
                unsigned dtype = halves[round % 2].dtype, op = round / 2 % KERNEL_OPS, shift = round / 8;

                for (unsigned i = 0; i < ALL; i++) {
                        a[i] = (uint16_t)i;
                        b[i] = (uint16_t)(i * 40503u + shift * 257u);
                }
                fold("baseline", dtype, op, plain, a, b, ALL);
                fold(set, dtype, op, got, a, b, ALL);
                assert_memory_equal(got, plain, sizeof(got));
        }
}

TEST_ALONE(each_set_gives_the_same_bits) {
        if (kernel_find("avx2") == NULL) {
                assert_false(cpu_has_all("avx2 fma f16c"));
                skip();
        }
        for (size_t i = 1; i < array_size(sets) && kernel_find(sets[i]) != NULL; i++)
                check_same_halves(sets[i]);
}

TEST_ALONE(any_number_of_elements_anywhere_and_onto_the_first_operand) {
        uint16_t a[96], b[96], got[96], wanted[96];

        for (unsigned i = 0; i < 96; i++) {
                a[i] = (uint16_t)(0x3c00 + i * 37);
                b[i] = (uint16_t)(0xbc11 + i * 11);
        }
        for (unsigned which = 0; which < 2 * KERNEL_OPS; which++)
                for (size_t n = 0; n <= 70; n++)
                        for (size_t at = 0; at < 3; at++) {
                                unsigned dtype = halves[which % 2].dtype;

                                memcpy(got, a, sizeof(got));
                                memcpy(wanted, a, sizeof(wanted));
                                for (size_t i = at; i < at + n; i++)
                                        wanted[i] = half_fold(&halves[which % 2], which / 2, a[i], b[i + 1]);
                                fold(NULL, dtype, which / 2, got + at, got + at, b + at + 1, n);
                                assert_memory_equal(got, wanted, sizeof(got));
                        }
}

/* ---- all others ---- */

#define CHECK(TYPE, DTYPE, VALUE_A, VALUE_B, APPLY)                                                          \
        do {                                                                                                 \
                TYPE a[101], b[101], got[101];                                                               \
                for (unsigned i = 0; i < 101; i++) {                                                         \
                        a[i] = (VALUE_A);                                                                    \
                        b[i] = (VALUE_B);                                                                    \
                }                                                                                            \
                for (unsigned op = 0; op < KERNEL_OPS; op++) {                                               \
                        fold(NULL, DTYPE, op, got, a, b, 101);                                               \
                        for (unsigned i = 0; i < 101; i++) {                                                 \
                                TYPE x = a[i], y = b[i], z = (APPLY);                                        \
                                assert_memory_equal(&got[i], &z, sizeof(z));                                 \
                        }                                                                                    \
                }                                                                                            \
        } while (0)

/* Adds and multiplies in a wider type, and cuts the result. */
#define WRAPPING(TYPE, WIDE)                                                                                 \
        (op == KERNEL_ADD   ? (TYPE)((WIDE)x + (WIDE)y)                                                      \
         : op == KERNEL_MUL ? (TYPE)((WIDE)x * (WIDE)y)                                                      \
         : op == KERNEL_MIN ? (x < y ? x : y)                                                                \
                            : (x < y ? y : x))

TEST_ALONE(integers_wrap_and_are_compared_as_what_they_are) {
        CHECK(uint8_t, WIRE__DTYPE__U8, (uint8_t)(i * 77), (uint8_t)(255 - i), WRAPPING(uint8_t, unsigned));
        CHECK(int32_t, WIRE__DTYPE__I32, (int32_t)(i * 2654435761u), (int32_t)(0x7fffffffu - i),
              WRAPPING(int32_t, uint64_t));
        CHECK(int64_t, WIRE__DTYPE__I64, (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15)),
              (int64_t)(UINT64_C(0x7fffffffffffffff) - i), WRAPPING(int64_t, unsigned __int128));
}

#define REAL                                                                                                 \
        (op == KERNEL_ADD   ? x + y                                                                          \
         : op == KERNEL_MUL ? x * y                                                                          \
         : op == KERNEL_MIN ? (y < x ? y : x)                                                                \
                            : (y > x ? y : x))

TEST_ALONE(floats_are_not_widened) {
        CHECK(float, WIRE__DTYPE__F32, 1e30f / (i + 1) - 3e28f, i % 3 ? 7e-3f * i : -1e30f, REAL);
        CHECK(double, WIRE__DTYPE__F64, 1e300 / (i + 1) - 3e298, i % 3 ? 7e-3 * i : -1e30, REAL);
}

/* The sign, the exponent and the ends of the fraction. */
static uint64_t double_bits(uint32_t bits) {
        uint64_t exponent = (bits >> 23 & 0xff) == 0xff ? 0x7ff : (bits >> 23 & 0xff) + 1023 - 127;

        return (uint64_t)(bits >> 31) << 63 | exponent << 52 | (uint64_t)(bits & 0x400000) << 29 |
               (bits & 0xff);
}

/* One NaN: that one; two: the second. Sums and products are quiet. */
TEST_ALONE(of_two_nans_the_second_stays) {
        static const uint32_t nan[] = {
                0x7fc00001, 0x7f800002, 0xffc00003, 0xff800004, 0x3f800000, 0xff800000
        };
        const unsigned n = array_size(nan);

        for (unsigned i = 0; i < n * n * KERNEL_OPS * array_size(sets); i++) {
                unsigned x = i % n, y = i / n % n, op = i / n / n % KERNEL_OPS, last = y < 4 ? y : x;
                const char *set = sets[i / n / n / KERNEL_OPS];
                uint32_t a[40], b[40], got, quiet = op == KERNEL_ADD || op == KERNEL_MUL ? 1u << 22 : 0;
                uint64_t c[40], d[40], wide;

                for (unsigned j = 0; j < 40; j++) {
                        a[j] = nan[x], b[j] = nan[y];
                        c[j] = double_bits(nan[x]), d[j] = double_bits(nan[y]);
                }
                if (last > 3 || kernel_find(set) == NULL)
                        continue;
                fold(set, WIRE__DTYPE__F32, op, a, a, b, 40);
                fold(set, WIRE__DTYPE__F64, op, c, c, d, 40);
                got = nan[last] | quiet, wide = double_bits(nan[last]) | (uint64_t)quiet << 29;
                for (unsigned j = 0; j < 40; j++) {
                        assert_int_equal(a[j], got);
                        assert_int_equal(c[j], wide);
                }
        }
}

TEST_ALONE(zeros_keep_their_signs) {
        float plus = 0, minus = -0.0f, got;

        for (unsigned op = KERNEL_MIN; op <= KERNEL_MAX; op++) {
                fold(NULL, WIRE__DTYPE__F32, op, &got, &plus, &minus, 1);
                assert_false(signbit(got));
                fold(NULL, WIRE__DTYPE__F32, op, &got, &minus, &plus, 1);
                assert_true(signbit(got));
        }
}

TEST_ALONE(each_type_has_a_size) {
        static const size_t size[] = {
                [WIRE__DTYPE__F32] = 4,  [WIRE__DTYPE__F64] = 8, [WIRE__DTYPE__F16] = 2,
                [WIRE__DTYPE__BF16] = 2, [WIRE__DTYPE__I32] = 4, [WIRE__DTYPE__I64] = 8,
                [WIRE__DTYPE__U8] = 1
        };

        for (unsigned dtype = 0; dtype < KERNEL_DTYPES; dtype++)
                assert_int_equal(kernel_size(dtype), size[dtype]);
        assert_int_equal(kernel_size(KERNEL_DTYPES), 0);
}
