/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/trailer.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "proto/names.h"

#define SUM_BITS 64u   /* of a rank's sum of squares, */
#define COUNT_BITS 32u /* and of its count */

/* The bits of whole numbers that are exact in the type; 0: values of the type are not measured. */
static unsigned digit_bits(unsigned dtype) {
        switch (dtype) {
        case WIRE__DTYPE__F64: return 32;
        case WIRE__DTYPE__F32: return 16;
        case WIRE__DTYPE__F16:
        case WIRE__DTYPE__BF16: return 8;
        default: return 0;
        }
}

static uint64_t digits_of_rank(unsigned dtype) {
        unsigned bits = digit_bits(dtype);

        return bits > 0 ? (SUM_BITS + COUNT_BITS) / bits : 0;
}

/* The magnitude of a whole number, in f16 or bf16: `fraction` bits follow its highest one. */
static uint16_t number_to_16(uint32_t number, unsigned fraction, unsigned bias) {
        unsigned exponent = 0;

        if (number == 0)
                return 0;
        while (number >> exponent > 1)
                exponent++;
        return (uint16_t)((exponent + bias) << fraction |
                          ((number << fraction >> exponent) & ((1u << fraction) - 1)));
}

static uint32_t number_from_16(unsigned stored, unsigned fraction, unsigned bias) {
        unsigned exponent = (stored & 0x7fff) >> fraction, rest = stored & ((1u << fraction) - 1);

        if (exponent < bias || exponent > bias + fraction + 1)
                return 0; /* no number here is below one, or so large */
        exponent -= bias;
        return (uint32_t)((uint64_t)(1u << fraction | rest) << exponent >> fraction);
}

/* One node gives a number, and the others give 0. The engine adds, takes the larger or the smaller one, or
 * multiplies; the result decodes to that number. */
static double number_encode(unsigned reduce, uint32_t number) {
        switch (reduce) {
        case WIRE__REDUCE__MIN: return 0 - (double)number;
        case WIRE__REDUCE__PROD: return (double)number + 1;
        default: return number;
        }
}

/* A value that is no digit counts as 0. */
static uint32_t number_decode(const struct trailer *trailer, double value) {
        uint64_t end = UINT64_C(1) << digit_bits(trailer->dtype);

        if (trailer->reduce == WIRE__REDUCE__MIN)
                value = -value;
        else if (trailer->reduce == WIRE__REDUCE__PROD)
                value -= 1;
        return value >= 1 && value < (double)end ? (uint32_t)value : 0;
}

/* Little-endian, like arenas. */
static void number_put(const struct trailer *trailer, uint64_t i, uint32_t number) {
        double value = number_encode(trailer->reduce, number);
        uint32_t magnitude = (uint32_t)(value < 0 ? -value : value);
        size_t size = dtype_size(trailer->dtype);
        float single = (float)value;
        uint64_t bits = number;

        switch (trailer->dtype) {
        case WIRE__DTYPE__F32: memcpy(&bits, &single, sizeof(single)); break;
        case WIRE__DTYPE__F64: memcpy(&bits, &value, sizeof(value)); break;
        case WIRE__DTYPE__F16: bits = number_to_16(magnitude, 10, 15) | (value < 0 ? 0x8000 : 0); break;
        case WIRE__DTYPE__BF16: bits = number_to_16(magnitude, 7, 127) | (value < 0 ? 0x8000 : 0); break;
        default: break;
        }
        memcpy(trailer->at + i * size, &bits, size);
}

static uint32_t number_get(const struct trailer *trailer, uint64_t i) {
        size_t size = dtype_size(trailer->dtype);
        uint64_t bits = 0;
        double value;
        float single;

        memcpy(&bits, trailer->at + i * size, size);
        switch (trailer->dtype) {
        case WIRE__DTYPE__F32:
                memcpy(&single, &bits, sizeof(single));
                value = (double)single;
                break;
        case WIRE__DTYPE__F64: memcpy(&value, &bits, sizeof(value)); break;
        case WIRE__DTYPE__F16: value = number_from_16((unsigned)bits, 10, 15); break;
        default: value = number_from_16((unsigned)bits, 7, 127); break;
        }
        if (size == sizeof(uint16_t) && bits >> 15 != 0)
                value = -value;
        return number_decode(trailer, value);
}

uint64_t trailer_elements(const struct trailer *trailer) {
        return trailer->params + trailer->world * digits_of_rank(trailer->dtype);
}

bool trailer_has_ranks(const struct trailer *trailer) {
        return digits_of_rank(trailer->dtype) > 0;
}

void trailer_clear(const struct trailer *trailer) {
        for (uint64_t i = 0; i < trailer_elements(trailer); i++)
                number_put(trailer, i, 0);
}

static bool map_has(const uint8_t *map, uint32_t i) {
        return (map[i / 8] >> i % 8 & 1) != 0;
}

void trailer_put_used(const struct trailer *trailer, const uint8_t *absent) {
        for (uint32_t i = 0; i < trailer->params; i++)
                if (absent == NULL || !map_has(absent, i))
                        number_put(trailer, i, 1);
}

void trailer_get_used(const struct trailer *trailer, uint8_t *absent) {
        size_t size = dtype_size(trailer->dtype);
        uint64_t count = 0;

        for (uint32_t i = 0; i < trailer->params; i++) {
                memcpy(&count, trailer->at + i * size, size);
                if (count != 0)
                        absent[i / 8] &= (uint8_t) ~(1u << i % 8);
        }
}

static uint64_t digits_put(const struct trailer *trailer, uint64_t at, uint64_t number, unsigned n_bits) {
        unsigned bits = digit_bits(trailer->dtype);

        for (unsigned done = 0; done < n_bits; done += bits)
                number_put(trailer, at++, (uint32_t)(number >> done & ((UINT64_C(1) << bits) - 1)));
        return at;
}

static uint64_t digits_get(const struct trailer *trailer, uint64_t at, unsigned n_bits) {
        unsigned bits = digit_bits(trailer->dtype);
        uint64_t number = 0;

        for (unsigned done = 0; done < n_bits; done += bits)
                number |= (uint64_t)number_get(trailer, at++) << done;
        return number;
}

static uint64_t rank_start(const struct trailer *trailer, uint32_t rank) {
        return trailer->params + rank * digits_of_rank(trailer->dtype);
}

void trailer_put_rank(const struct trailer *trailer, uint32_t rank, double sum_squares, uint64_t count) {
        uint64_t sum, at;

        memcpy(&sum, &sum_squares, sizeof(sum));
        at = digits_put(trailer, rank_start(trailer, rank), sum, SUM_BITS);
        digits_put(trailer, at, count < UINT32_MAX ? count : UINT32_MAX, COUNT_BITS);
}

void trailer_get_rank(const struct trailer *trailer, uint32_t rank, double *ret_sum_squares,
                      uint64_t *ret_count) {
        uint64_t at = rank_start(trailer, rank), sum = digits_get(trailer, at, SUM_BITS);

        memcpy(ret_sum_squares, &sum, sizeof(sum));
        *ret_count = digits_get(trailer, at + SUM_BITS / digit_bits(trailer->dtype), COUNT_BITS);
}
