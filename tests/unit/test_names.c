/* SPDX-License-Identifier: Apache-2.0 */
/* Types, reductions, codes, shapes and names. */
#include "tests.h"

#include "gradsync.pb-c.h"
#include "include/gradsync/gradsync.h"
#include "proto/frame.h"
#include "proto/names.h"

TEST_ALONE(types_have_sizes_and_names) {
        static const struct {
                unsigned dtype;
                size_t size;
                const char *name;
                bool is_float;
        } rows[] = {
                { GRADSYNC_F32, 4, "f32", true },
                { GRADSYNC_F64, 8, "f64", true },
                { GRADSYNC_F16, 2, "f16", true },
                { GRADSYNC_BF16, 2, "bf16", true },
                { GRADSYNC_I32, 4, "i32", false },
                { GRADSYNC_I64, 8, "i64", false },
                { GRADSYNC_U8, 1, "u8", false },
                { 0, 0, "?", false },
                { 8, 0, "?", false },
                { UINT32_MAX, 0, "?", false },
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                assert_int_equal(dtype_size(rows[i].dtype), rows[i].size);
                assert_string_equal(dtype_name(rows[i].dtype), rows[i].name);
                assert_int_equal(dtype_is_float(rows[i].dtype), rows[i].is_float);
        }
}

TEST_ALONE(reductions_know_their_types) {
        assert_string_equal(reduce_name(GRADSYNC_AVG), "avg");
        assert_string_equal(reduce_name(GRADSYNC_SUM), "sum");
        assert_string_equal(reduce_name(GRADSYNC_MIN), "min");
        assert_string_equal(reduce_name(GRADSYNC_MAX), "max");
        assert_string_equal(reduce_name(GRADSYNC_PROD), "prod");
        assert_string_equal(reduce_name(0), "?");
        assert_string_equal(reduce_name(6), "?");
        for (unsigned dtype = GRADSYNC_F32; dtype <= GRADSYNC_U8; dtype++) {
                assert_int_equal(reduce_valid(GRADSYNC_AVG, dtype), dtype <= GRADSYNC_BF16);
                for (unsigned reduce = GRADSYNC_SUM; reduce <= GRADSYNC_PROD; reduce++)
                        assert_true(reduce_valid(reduce, dtype));
                assert_false(reduce_valid(0, dtype));
                assert_false(reduce_valid(GRADSYNC_PROD + 1, dtype));
        }
        assert_false(reduce_valid(GRADSYNC_SUM, 0));
        assert_false(reduce_valid(GRADSYNC_SUM, GRADSYNC_U8 + 1));
}

TEST_ALONE(operations_have_names) {
        assert_string_equal(operation_name(WIRE__OPERATION_KIND__BARRIER), "barrier");
        assert_string_equal(operation_name(WIRE__OPERATION_KIND__BROADCAST), "broadcast");
        assert_string_equal(operation_name(WIRE__OPERATION_KIND__ALLGATHER), "allgather");
        assert_string_equal(operation_name(WIRE__OPERATION_KIND__REDUCE_SCATTER), "reduce-scatter");
        assert_string_equal(operation_name(WIRE__OPERATION_KIND__ALLREDUCE), "allreduce");
        assert_string_equal(operation_name(0), "?");
        assert_string_equal(operation_name(6), "?");
}

TEST_ALONE(codes_are_those_of_the_public_header) {
#define ROW(name)                                                                                            \
        { GRADSYNC_##name, WIRE__CODE__##name, #name }
        static const struct {
                int library;
                int wire;
                const char *name;
        } rows[] = {
                ROW(OK),          ROW(AGAIN),         ROW(INTERRUPTED),
                ROW(TIMEOUT),     ROW(VOID_RETRY),    ROW(VOID_BEHIND),
                ROW(INVALID),     ROW(STATE),         ROW(NO_MEMORY),
                ROW(FORKED),      ROW(UNSUPPORTED),   ROW(QUOTA),
                ROW(SYSTEM),      ROW(PLAN_MISMATCH), ROW(OPERATION_MISMATCH),
                ROW(RANK_TAKEN),  ROW(JOB_FULL),      ROW(STALE),
                ROW(MEMBER_LOST), ROW(DEADLOCK),      ROW(NO_DAEMON),
                ROW(DENIED),      ROW(VERSION),       ROW(PROTOCOL),
                ROW(DAEMON_LOST),
        };
#undef ROW
        size_t count = sizeof(rows) / sizeof(rows[0]);

        assert_int_equal(wire__code__descriptor.n_values, count);
        for (size_t i = 0; i < count; i++) {
                assert_int_equal(rows[i].library, rows[i].wire);
                assert_string_equal(code_name((unsigned)rows[i].wire), rows[i].name);
        }
        assert_string_equal(code_name(4), "?");
        assert_string_equal(code_name(UINT32_MAX), "?");
}

TEST_ALONE(shapes_are_multiplied_with_care) {
        uint64_t elements = 0;

        assert_true(shape_elements(NULL, 0, &elements));
        assert_int_equal(elements, 1);
        assert_true(shape_elements((uint64_t[]){ 3, 5, 7 }, 3, &elements));
        assert_int_equal(elements, 105);
        assert_true(shape_elements((uint64_t[]){ UINT64_MAX, 1 }, 2, &elements));
        assert_true(elements == UINT64_MAX);
        assert_true(shape_elements((uint64_t[]){ 1, 1, 1, 1, 1, 1, 1, 9 }, LIMIT_DIMS, &elements));
        assert_int_equal(elements, 9);
        elements = 77;
        assert_false(shape_elements((uint64_t[]){ 1, 1, 1, 1, 1, 1, 1, 1, 1 }, LIMIT_DIMS + 1, &elements));
        assert_false(shape_elements((uint64_t[]){ 4, 0 }, 2, &elements));
        assert_false(shape_elements((uint64_t[]){ UINT64_MAX, 2 }, 2, &elements));
        assert_false(shape_elements((uint64_t[]){ UINT64_C(1) << 32, UINT64_C(1) << 32 }, 2, &elements));
        assert_false(shape_elements((uint64_t[]){ UINT64_C(1) << 63, 2, 0 }, 3, &elements));
        assert_int_equal(elements, 77);
}

/* Names are UTF-8, of which another test has all kinds of mistakes, without control characters. */
TEST_ALONE(names_are_checked) {
        char longest[LIMIT_NAME + 2];
        static const char *const good[] = {
                "a", "layer4.0.conv1.weight", "with space", "g\xc3\xbcte", "\xf0\x9f\x98\x80", "\xc2\xa0",
                "~",
        };
        static const char *const bad[] = {
                "", "a\nb", "\x01", "\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "\xff", "a\xc3",
        };

        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                assert_true(name_valid(good[i]) && name_valid_job(good[i]));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_false(name_valid(bad[i]) || name_valid_job(bad[i]));
        memset(longest, 'n', sizeof(longest));
        longest[LIMIT_NAME] = '\0';
        assert_true(name_valid(longest));
        longest[LIMIT_NAME] = 'n';
        longest[LIMIT_NAME + 1] = '\0';
        assert_false(name_valid(longest));
        assert_true(name_valid("a/b"));
        assert_false(name_valid_job("a/b"));
}

/* The textbook decoder, to compare with: all sequences of up to three bytes out of the interesting ones. */
static bool well_formed(const uint8_t *s, size_t n) {
        for (size_t i = 0; i < n;) {
                uint8_t b = s[i];
                size_t tail = b < 0x80                 ? 0
                              : b >= 0xc2 && b <= 0xdf ? 1
                              : b >= 0xe0 && b <= 0xef ? 2
                              : b >= 0xf0 && b <= 0xf4 ? 3
                                                       : 9;
                uint8_t low = b == 0xe0   ? 0xa0
                              : b == 0xf0 ? 0x90
                                          : 0x80,
                        high = b == 0xed   ? 0x9f
                               : b == 0xf4 ? 0x8f
                                           : 0xbf;

                if (i + tail >= n)
                        return false;
                for (size_t k = 1; k <= tail; k++, low = 0x80, high = 0xbf)
                        if (s[i + k] < low || s[i + k] > high)
                                return false;
                i += tail + 1;
        }
        return true;
}

TEST_ALONE(utf8_is_what_the_standard_says) {
        uint8_t s[4];

        for (unsigned a = 0; a < 256; a++)
                for (unsigned b = 0; b < 256; b++)
                        for (unsigned c = 0; c < 256; c++)
                                for (unsigned d = 0x70; d < 0xd0; d += 0x10) {
                                        s[0] = (uint8_t)a, s[1] = (uint8_t)b, s[2] = (uint8_t)c,
                                        s[3] = (uint8_t)d;
                                        for (size_t n = d == 0x70 ? 1 : 4; n <= 4; n++)
                                                if (utf8_valid((char *)s, n) != well_formed(s, n))
                                                        fail_msg("%02x %02x %02x %02x, %zu bytes", a, b, c, d,
                                                                 n);
                                }
        assert_true(utf8_valid("", 0));
        assert_true(utf8_valid("a\0b", 3));
}
