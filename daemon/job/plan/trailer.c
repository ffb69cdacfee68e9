/* SPDX-License-Identifier: Apache-2.0 */
#include "job/plan/trailer.h"

#include <string.h>

#include "gradsync.pb-c.h"
#include "proto/names.h"

/* The number one, little-endian, like arenas. */
static uint64_t trailer_one(unsigned dtype) {
        switch (dtype) {
        case WIRE__DTYPE__F32: return 0x3f800000;
        case WIRE__DTYPE__F64: return UINT64_C(0x3ff0) << 48;
        case WIRE__DTYPE__F16: return 0x3c00;
        case WIRE__DTYPE__BF16: return 0x3f80;
        default: return 1;
        }
}

uint64_t trailer_elements(const struct trailer *trailer) {
        return trailer->params;
}

static bool trailer_has(const uint8_t *map, uint32_t i) {
        return (map[i / 8] >> i % 8 & 1) != 0;
}

void trailer_put_used(const struct trailer *trailer, const uint8_t *absent) {
        uint64_t one = trailer_one(trailer->dtype), zero = 0;
        size_t size = dtype_size(trailer->dtype);

        for (uint32_t i = 0; i < trailer->params; i++)
                memcpy(trailer->at + i * size, absent != NULL && trailer_has(absent, i) ? &zero : &one, size);
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
