/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions between nodes, against a reference that counts in another way; each set gives the same bits.
 */
#include "cpu_flags.h"
#include "halves.h"
#include "tests.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/gloo/fold.h"

#define ALL 65536u
#define OPS 4u

/* ---- 16-bit floats ---- */

static float half_apply(unsigned reduce, float a, float b) {
        switch (reduce) {
        case ENGINE_SUM: return a + b;
        case ENGINE_PROD: return a * b;
        case ENGINE_MIN: return b < a ? b : a;
        default: return b > a ? b : a;
        }
}

/* One NaN: that one, quiet; two: the first. */
static uint16_t half_fold(const struct half *half, unsigned reduce, uint16_t a, uint16_t b) {
        uint16_t quiet = 1u << (half->fraction - 1);
        float x = (float)half_value(half, a), y = (float)half_value(half, b), z;

        if (isnan(x) || isnan(y))
                return (isnan(x) ? a : b) | quiet;
        z = half_apply(reduce, x, y);
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

static void check_halves(const struct half *half, unsigned reduce, uint16_t partner, const char *set) {
        static uint16_t a[ALL], b[ALL], got[ALL];
        fold_fn fold = fold_find(half->dtype, reduce, set);

        for (unsigned i = 0; i < ALL; i++) {
                a[i] = (uint16_t)i;
                b[i] = partner;
        }
        fold(got, a, b, ALL);
        for (unsigned i = 0; i < ALL; i++) {
                uint16_t wanted = half_fold(half, reduce, a[i], b[i]);

                if (wanted == UINT16_MAX ? !half_is_nan(half, got[i]) : got[i] != wanted)
                        fail_msg("%s, type %u, reduction %u: %04x, %04x gives %04x, not %04x", set,
                                 half->dtype, reduce, a[i], b[i], got[i], wanted);
        }
}

TEST_ALONE(halves_are_rounded_to_nearest_even_and_of_two_nans_the_first_stays) {
        uint16_t partner[64];

        for (unsigned i = 0; i < 2; i++)
                for (size_t n = partners(&halves[i], partner); n-- > 0;)
                        for (unsigned reduce = 0; reduce < OPS; reduce++) {
                                check_halves(&halves[i], reduce, partner[n], "baseline");
                                check_halves(&halves[i], reduce, partner[n], fold_best());
                        }
}

/* Against all partners, but the ones of a value are others each time. */
TEST_ALONE(each_set_gives_the_same_bits) {
        static uint16_t a[ALL], b[ALL], plain[ALL], got[ALL];

        if (strcmp(fold_best(), "baseline") == 0) {
                assert_false(cpu_has_all("avx2 f16c"));
                skip();
        }
        for (unsigned round = 0; round < 256 * 2 * OPS; round++) {
                unsigned dtype = halves[round % 2].dtype, reduce = round / 2 % OPS, shift = round / 8;

                for (unsigned i = 0; i < ALL; i++) {
                        a[i] = (uint16_t)i;
                        b[i] = (uint16_t)(i * 40503u + shift * 257u);
                }
                fold_find(dtype, reduce, "baseline")(plain, a, b, ALL);
                fold_find(dtype, reduce, fold_best())(got, a, b, ALL);
                assert_memory_equal(got, plain, sizeof(got));
        }
}

TEST_ALONE(any_number_of_elements_anywhere_and_onto_the_first_operand) {
        uint16_t a[96], b[96], got[96], wanted[96];

        for (unsigned i = 0; i < 96; i++) {
                a[i] = (uint16_t)(0x3c00 + i * 37);
                b[i] = (uint16_t)(0xbc11 + i * 11);
        }
        for (unsigned which = 0; which < 2 * OPS; which++)
                for (size_t n = 0; n <= 70; n++)
                        for (size_t at = 0; at < 3; at++) {
                                unsigned dtype = halves[which % 2].dtype;
                                fold_fn fold = fold_find(dtype, which / 2, NULL);

                                memcpy(got, a, sizeof(got));
                                memcpy(wanted, a, sizeof(wanted));
                                for (size_t i = at; i < at + n; i++)
                                        wanted[i] = half_fold(&halves[which % 2], which / 2, a[i], b[i + 1]);
                                fold(got + at, got + at, b + at + 1, n);
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
                for (unsigned reduce = 0; reduce < OPS; reduce++) {                                          \
                        fold_find(DTYPE, reduce, NULL)(got, a, b, 101);                                      \
                        for (unsigned i = 0; i < 101; i++) {                                                 \
                                TYPE x = a[i], y = b[i], z = (APPLY);                                        \
                                assert_memory_equal(&got[i], &z, sizeof(z));                                 \
                        }                                                                                    \
                }                                                                                            \
        } while (0)

/* Adds and multiplies in a wider type, and cuts the result. */
#define WRAPPING(TYPE, WIDE)                                                                                 \
        (reduce == ENGINE_SUM    ? (TYPE)((WIDE)x + (WIDE)y)                                                 \
         : reduce == ENGINE_PROD ? (TYPE)((WIDE)x * (WIDE)y)                                                 \
         : reduce == ENGINE_MIN  ? (x < y ? x : y)                                                           \
                                 : (x < y ? y : x))

TEST_ALONE(integers_wrap_and_are_compared_as_what_they_are) {
        CHECK(uint8_t, WIRE__DTYPE__U8, (uint8_t)(i * 77), (uint8_t)(255 - i), WRAPPING(uint8_t, unsigned));
        CHECK(int32_t, WIRE__DTYPE__I32, (int32_t)(i * 2654435761u), (int32_t)(0x7fffffffu - i),
              WRAPPING(int32_t, uint64_t));
        CHECK(int64_t, WIRE__DTYPE__I64, (int64_t)(i * UINT64_C(0x9e3779b97f4a7c15)),
              (int64_t)(UINT64_C(0x7fffffffffffffff) - i), WRAPPING(int64_t, unsigned __int128));
}

#define REAL                                                                                                 \
        (reduce == ENGINE_SUM    ? x + y                                                                     \
         : reduce == ENGINE_PROD ? x * y                                                                     \
         : reduce == ENGINE_MIN  ? (y < x ? y : x)                                                           \
                                 : (y > x ? y : x))

TEST_ALONE(floats_are_not_widened) {
        CHECK(float, WIRE__DTYPE__F32, 1e30f / (i + 1) - 3e28f, i % 3 ? 7e-3f * i : -1e30f, REAL);
        CHECK(double, WIRE__DTYPE__F64, 1e300 / (i + 1) - 3e298, i % 3 ? 7e-3 * i : -1e30, REAL);
}

TEST_ALONE(a_nan_stays) {
        float f[3] = { NAN, 1, -INFINITY }, g[3] = { 1, NAN, NAN }, got_f[3];
        double d[3] = { NAN, 1, INFINITY }, e[3] = { 1, NAN, NAN }, got_d[3];

        for (unsigned reduce = 0; reduce < OPS; reduce++) {
                fold_find(WIRE__DTYPE__F32, reduce, NULL)(got_f, f, g, 3);
                fold_find(WIRE__DTYPE__F64, reduce, NULL)(got_d, d, e, 3);
                for (unsigned i = 0; i < 3; i++)
                        assert_true(isnan(got_f[i]) && isnan(got_d[i]));
        }
}

TEST_ALONE(zeros_keep_their_signs) {
        float plus = 0, minus = -0.0f, got;

        for (unsigned reduce = ENGINE_MIN; reduce <= ENGINE_MAX; reduce++) {
                fold_find(WIRE__DTYPE__F32, reduce, NULL)(&got, &plus, &minus, 1);
                assert_false(signbit(got));
                fold_find(WIRE__DTYPE__F32, reduce, NULL)(&got, &minus, &plus, 1);
                assert_true(signbit(got));
        }
}

TEST_ALONE(there_are_no_others) {
        static const size_t size[] = {
                [WIRE__DTYPE__F32] = 4,  [WIRE__DTYPE__F64] = 8, [WIRE__DTYPE__F16] = 2,
                [WIRE__DTYPE__BF16] = 2, [WIRE__DTYPE__I32] = 4, [WIRE__DTYPE__I64] = 8,
                [WIRE__DTYPE__U8] = 1
        };

        for (unsigned dtype = 1; dtype <= WIRE__DTYPE__U8; dtype++) {
                assert_int_equal(fold_size(dtype), size[dtype]);
                assert_non_null(fold_find(dtype, ENGINE_PROD, NULL));
                assert_null(fold_find(dtype, ENGINE_COPY, NULL));
        }
        assert_int_equal(fold_size(0), 0);
        assert_int_equal(fold_size(WIRE__DTYPE__U8 + 1), 0);
        assert_null(fold_find(WIRE__DTYPE__U8 + 1, ENGINE_SUM, NULL));
}

TEST_ALONE(the_environment_asks_for_the_baseline) {
        fold_fn best = fold_find(WIRE__DTYPE__F16, ENGINE_SUM, fold_best());
        fold_fn baseline = fold_find(WIRE__DTYPE__F16, ENGINE_SUM, "baseline");

        assert_true((best == baseline) == (strcmp(fold_best(), "baseline") == 0));
        setenv("GRADSYNC_SIMD", "baseline", 1);
        assert_ptr_equal(fold_find(WIRE__DTYPE__F16, ENGINE_SUM, NULL), baseline);
        setenv("GRADSYNC_SIMD", "avx512", 1);
        assert_ptr_equal(fold_find(WIRE__DTYPE__F16, ENGINE_SUM, NULL), best);
        unsetenv("GRADSYNC_SIMD");
        assert_ptr_equal(fold_find(WIRE__DTYPE__F16, ENGINE_SUM, NULL), best);
}
