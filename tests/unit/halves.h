/* SPDX-License-Identifier: Apache-2.0 */
/* 16-bit floats by what their bits mean, in the arithmetic of the C library. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "gradsync.pb-c.h"

struct half {
        unsigned dtype;
        int fraction, least; /* bits; exponent of the smallest normal value */
};

static const struct half halves[] = { { WIRE__DTYPE__F16, 10, -14 }, { WIRE__DTYPE__BF16, 7, -126 } };

static inline double half_value(const struct half *half, uint16_t bits) {
        unsigned fraction = bits & ((1u << half->fraction) - 1), top = (bits & 0x7fffu) >> half->fraction;
        unsigned last = (1u << (15 - half->fraction)) - 1;
        double value;

        if (top == last)
                value = fraction == 0 ? INFINITY : NAN;
        else if (top == 0)
                value = ldexp(fraction, half->least - half->fraction);
        else
                value = ldexp(fraction + (1u << half->fraction), (int)top - 1 + half->least - half->fraction);
        return bits & 0x8000 ? -value : value;
}

/* The nearest one, the even one of two. */
static inline uint16_t half_bits(const struct half *half, double value) {
        uint16_t sign = signbit(value) ? 0x8000 : 0, infinity = 0x8000 - (1u << half->fraction);
        int exponent = value != 0 && isfinite(value) ? ilogb(value) : half->least;

        if (isnan(value))
                return (uint16_t)(sign | infinity | 1u << (half->fraction - 1));
        if (isinf(value))
                return sign | infinity;
        if (exponent < half->least)
                exponent = half->least;
        double steps = nearbyint(ldexp(fabs(value), half->fraction - exponent));
        double bits = steps + (double)(exponent - half->least) * (1u << half->fraction);
        return sign | (bits < infinity ? (uint16_t)bits : infinity);
}
