/* SPDX-License-Identifier: Apache-2.0 */
/* The trailer of a bucket, which nodes exchange with it, is exact in every type that a bucket can have. */
#include "tests.h"

#include <math.h>

#include "gradsync.pb-c.h"
#include "job/plan/trailer.h"
#include "proto/names.h"

#define PARAMS 11u
#define WORLD 5u
#define ROOM 4096u

static const unsigned dtypes[] = { WIRE__DTYPE__F32, WIRE__DTYPE__F64, WIRE__DTYPE__F16, WIRE__DTYPE__BF16,
                                   WIRE__DTYPE__I32, WIRE__DTYPE__I64, WIRE__DTYPE__U8 };
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

/* Neither an element before it nor one after it is touched. */
static unsigned char room[2 * ROOM];

static struct trailer begin_with(unsigned dtype, unsigned reduce) {
        struct trailer trailer = { .dtype = dtype,
                                   .reduce = reduce,
                                   .params = reduce == WIRE__REDUCE__SUM ? PARAMS : 0,
                                   .world = WORLD,
                                   .at = room + ROOM };

        memset(room, 0xa5, sizeof(room));
        assert_true(trailer_elements(&trailer) * dtype_size(dtype) <= ROOM);
        trailer_clear(&trailer);
        return trailer;
}

static struct trailer begin(unsigned dtype) {
        return begin_with(dtype, WIRE__REDUCE__SUM);
}

static void assert_inside(const struct trailer *trailer) {
        for (size_t i = 0; i < ROOM; i++)
                assert_int_equal(room[i], 0xa5);
        for (size_t i = ROOM + trailer_elements(trailer) * dtype_size(trailer->dtype); i < 2 * ROOM; i++)
                assert_int_equal(room[i], 0xa5);
}

TEST_ALONE(what_is_used_is_a_number_above_zero) {
        for (unsigned i = 0; i < DTYPES; i++) {
                struct trailer trailer = begin(dtypes[i]);
                uint8_t absent[2] = { 0x14, 0x04 }, map[2] = { 0xff, 0x07 };

                trailer_put_used(&trailer, absent);
                assert_inside(&trailer);
                trailer_get_used(&trailer, map);
                assert_memory_equal(map, absent, sizeof(map));
                map[0] = 0x06; /* it takes away, and adds nothing */
                trailer_get_used(&trailer, map);
                assert_int_equal(map[0], 0x04);
                trailer_put_used(&trailer, NULL);
                trailer_get_used(&trailer, map);
                assert_int_equal(map[0] | map[1], 0);
        }
}

/* The number of a use is one, which every engine can add. */
TEST_ALONE(a_use_of_it_is_one) {
        static const uint64_t one[DTYPES] = { 0x3f800000, 0x3ff0000000000000, 0x3c00, 0x3f80, 1, 1, 1 };

        for (unsigned i = 0; i < DTYPES; i++) {
                struct trailer trailer = begin(dtypes[i]);
                size_t size = dtype_size(dtypes[i]);
                uint8_t absent[2] = { 0xfe, 0x07 };
                uint64_t number = 0;

                trailer_put_used(&trailer, absent);
                memcpy(&number, trailer.at, size);
                assert_true(number == one[i]);
                memcpy(&number, trailer.at + size, size);
                assert_true((dtype_size(dtypes[i]) < 8 ? number << (64 - 8 * size) : number) == 0);
        }
}

/* A node without members gives zeros. */
TEST_ALONE(zeros_use_nothing) {
        for (unsigned i = 0; i < DTYPES; i++) {
                struct trailer trailer = begin(dtypes[i]);
                uint8_t map[2] = { 0xff, 0x07 };

                memset(trailer.at, 0, trailer_elements(&trailer) * dtype_size(dtypes[i]));
                trailer_get_used(&trailer, map);
                assert_int_equal(map[0], 0xff);
                assert_int_equal(map[1], 0x07);
        }
}

/* ---- what was measured ---- */

static const double sums[] = { 0, 1, 0x1.fffffffffffffp+1023, 0x1.0000000000001p-1022, INFINITY };
static const uint64_t counts[] = { 0, 1, UINT32_MAX, 0x12345678, UINT64_MAX };

static void give_rank(const struct trailer *trailer, uint32_t rank) {
        trailer_put_rank(trailer, rank, sums[rank], counts[rank]);
}

static void assert_rank(const struct trailer *trailer, uint32_t rank) {
        double sum;
        uint64_t count;

        trailer_get_rank(trailer, rank, &sum, &count);
        assert_memory_equal(&sum, &sums[rank], sizeof(sum));
        assert_int_equal(count, counts[rank] < UINT32_MAX ? counts[rank] : UINT32_MAX);
}

TEST_ALONE(what_was_measured_comes_back) {
        for (unsigned i = 0; i < DTYPES; i++)
                for (unsigned reduce = WIRE__REDUCE__SUM; reduce <= WIRE__REDUCE__PROD; reduce++) {
                        struct trailer trailer = begin_with(dtypes[i], reduce);

                        assert_int_equal(trailer_has_ranks(&trailer), dtype_is_float(dtypes[i]));
                        for (uint32_t rank = 0; rank < WORLD && dtype_is_float(dtypes[i]); rank++)
                                give_rank(&trailer, rank);
                        assert_inside(&trailer);
                        for (uint32_t rank = 0; rank < WORLD && dtype_is_float(dtypes[i]); rank++)
                                assert_rank(&trailer, rank);
                }
}

/* An element of a 16-bit type is a number. */
static float value_of(unsigned dtype, uint16_t stored) {
        uint32_t bits = (uint32_t)stored << 16, exponent = stored >> 10 & 0x1f, rest = stored & 0x3ff;
        float value;

        if (dtype == WIRE__DTYPE__F16)
                bits = (uint32_t)(stored & 0x8000) << 16 | (exponent == 0 ? 0 : (exponent + 112) << 23) |
                       rest << 13;
        memcpy(&value, &bits, sizeof(value));
        return value;
}

/* Reduces the trailers of three nodes as an engine does. The first node has all ranks but the last, the
 * second one has that, and the third one has none. The results have no rounded digits. */
static void reduce_16(unsigned dtype, unsigned reduce) {
        struct trailer trailer = begin_with(dtype, reduce);
        uint16_t *element = (uint16_t *)(void *)trailer.at;
        size_t n = trailer_elements(&trailer);
        uint16_t given[ROOM / 2], none[ROOM / 2];

        memcpy(none, element, n * sizeof(*element));
        give_rank(&trailer, WORLD - 1);
        memcpy(given, element, n * sizeof(*element));
        trailer_clear(&trailer);
        for (uint32_t rank = 0; rank < WORLD - 1; rank++)
                give_rank(&trailer, rank);
        for (size_t i = 0; i < n; i++) {
                float a = value_of(dtype, element[i]), b = value_of(dtype, given[i]);
                float c = value_of(dtype, none[i]), whole = a + b + c;

                if (reduce == WIRE__REDUCE__MIN)
                        whole = fminf(a, fminf(b, c));
                else if (reduce == WIRE__REDUCE__MAX)
                        whole = fmaxf(a, fmaxf(b, c));
                else if (reduce == WIRE__REDUCE__PROD)
                        whole = a * b * c;
                assert_true(whole == a || whole == b);
                assert_true(fabsf(whole) <= 256);
                if (whole != a)
                        element[i] = given[i];
        }
        for (uint32_t rank = 0; rank < WORLD; rank++)
                assert_rank(&trailer, rank);
}

TEST_ALONE(digits_are_whole_numbers_of_their_type) {
        for (unsigned reduce = WIRE__REDUCE__SUM; reduce <= WIRE__REDUCE__PROD; reduce++) {
                reduce_16(WIRE__DTYPE__BF16, reduce);
                reduce_16(WIRE__DTYPE__F16, reduce);
        }
}

/* Any bytes from other nodes give a number in range. */
TEST_ALONE(what_is_no_digit_counts_as_none) {
        for (unsigned i = 0; i < DTYPES; i++)
                for (unsigned byte = 0; byte < 256; byte++) {
                        struct trailer trailer = begin(dtypes[i]);
                        double sum;
                        uint64_t count;

                        if (!trailer_has_ranks(&trailer))
                                continue;
                        memset(trailer.at, (int)byte, trailer_elements(&trailer) * dtype_size(dtypes[i]));
                        trailer_get_rank(&trailer, WORLD - 1, &sum, &count);
                        assert_true(count <= UINT32_MAX);
                }
}
