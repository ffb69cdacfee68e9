/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and reductions by name, and elements of these types as numbers. See values.h. */
#include "values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradsync/gradsync.h>

size_t dtype_bytes(unsigned dtype) {
        static const size_t bytes[] = { 0, 4, 8, 2, 2, 4, 8, 1 };

        return bytes[dtype & 7];
}

unsigned dtype_of(const char *name) {
        static const char *const names[] = { "", "f32", "f64", "f16", "bf16", "i32", "i64", "u8" };

        for (unsigned i = 1; i < 8; i++)
                if (strcmp(name, names[i]) == 0)
                        return i;
        return (unsigned)strtoul(name, NULL, 0);
}

unsigned reduce_of(const char *name) {
        static const char *const names[] = { "", "avg", "sum", "min", "max", "prod" };

        for (unsigned i = 1; i < 6; i++)
                if (strcmp(name, names[i]) == 0)
                        return i;
        return (unsigned)strtoul(name, NULL, 0);
}

/* Converts numbers that are neither too small nor too large for it. */
static uint16_t f16_of(double value) {
        int exponent;
        double fraction = frexp(fabs(value), &exponent);
        unsigned bits = value == 0 ? 0 : (unsigned)(exponent + 14) << 10 | (unsigned)(fraction * 2048 - 1024);

        return (uint16_t)(bits | (signbit(value) ? 0x8000u : 0));
}

static double number_of_f16(uint16_t bits) {
        double magnitude = (bits & 0x7fff) == 0 ? 0 : ldexp(1024 + (bits & 0x3ff), (bits >> 10 & 0x1f) - 25);

        return bits & 0x8000 ? -magnitude : magnitude;
}

void store(void *at, unsigned dtype, uint64_t i, double value) {
        float f = (float)value;
        uint32_t bits;

        switch (dtype) {
        case GRADSYNC_F32: ((float *)at)[i] = f; break;
        case GRADSYNC_F64: ((double *)at)[i] = value; break;
        case GRADSYNC_F16: ((uint16_t *)at)[i] = f16_of(value); break;
        case GRADSYNC_BF16:
                memcpy(&bits, &f, 4);
                ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
                break;
        case GRADSYNC_I32: ((int32_t *)at)[i] = (int32_t)value; break;
        case GRADSYNC_I64: ((int64_t *)at)[i] = (int64_t)value; break;
        case GRADSYNC_U8: ((uint8_t *)at)[i] = (uint8_t)value; break;
        default: abort();
        }
}

double load(const void *at, unsigned dtype, uint64_t i) {
        uint32_t bits;
        float f;

        switch (dtype) {
        case GRADSYNC_F32: return ((const float *)at)[i];
        case GRADSYNC_F64: return ((const double *)at)[i];
        case GRADSYNC_F16: return number_of_f16(((const uint16_t *)at)[i]);
        case GRADSYNC_BF16:
                bits = (uint32_t)((const uint16_t *)at)[i] << 16;
                memcpy(&f, &bits, 4);
                return f;
        case GRADSYNC_I32: return ((const int32_t *)at)[i];
        case GRADSYNC_I64: return (double)((const int64_t *)at)[i];
        case GRADSYNC_U8: return ((const uint8_t *)at)[i];
        default: abort();
        }
}
