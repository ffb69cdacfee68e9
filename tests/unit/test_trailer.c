/* SPDX-License-Identifier: Apache-2.0 */
/* What goes along with a bucket between nodes is exact in every type that a bucket can have. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "gradsync.pb-c.h"
#include "job/plan/trailer.h"
#include "proto/names.h"

#define PARAMS 11u
#define ROOM 4096u

static const unsigned dtypes[] = { WIRE__DTYPE__F32, WIRE__DTYPE__F64, WIRE__DTYPE__F16, WIRE__DTYPE__BF16,
                                   WIRE__DTYPE__I32, WIRE__DTYPE__I64, WIRE__DTYPE__U8 };
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

/* Neither an element before it nor one after it is touched. */
static unsigned char room[2 * ROOM];

static struct trailer begin(unsigned dtype) {
        struct trailer trailer = { .dtype = dtype, .params = PARAMS, .at = room + ROOM };

        memset(room, 0xa5, sizeof(room));
        assert_true(trailer_elements(&trailer) * dtype_size(dtype) <= ROOM);
        return trailer;
}

static void assert_inside(const struct trailer *trailer) {
        for (size_t i = 0; i < ROOM; i++)
                assert_int_equal(room[i], 0xa5);
        for (size_t i = ROOM + trailer_elements(trailer) * dtype_size(trailer->dtype); i < 2 * ROOM; i++)
                assert_int_equal(room[i], 0xa5);
}

static void what_is_used_is_a_number_above_zero(void **state) {
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

/* As the sum of two nodes is, in the types that this can add. */
static void a_use_of_it_is_one(void **state) {
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

/* What a node without members gives. */
static void zeros_use_nothing(void **state) {
        for (unsigned i = 0; i < DTYPES; i++) {
                struct trailer trailer = begin(dtypes[i]);
                uint8_t map[2] = { 0xff, 0x07 };

                memset(trailer.at, 0, trailer_elements(&trailer) * dtype_size(dtypes[i]));
                trailer_get_used(&trailer, map);
                assert_int_equal(map[0], 0xff);
                assert_int_equal(map[1], 0x07);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_used_is_a_number_above_zero),
                cmocka_unit_test(a_use_of_it_is_one),
                cmocka_unit_test(zeros_use_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
