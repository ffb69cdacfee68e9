/* SPDX-License-Identifier: Apache-2.0 */
/* Registered parameters, and the buckets that are made of them. */
#include "tests.h"

#undef fail /* cmocka's macro; the library has a function of that name */

#include "client/lib/base/fail.h"
#include "client/lib/memory/registered.h"
#include "client/lib/plan/layout.h"
#include "client/lib/plan/params.h"
#include "gradsync/gradsync.h"
#include "proto/diagnosis.h"

#define KIB 1024u

static struct params params;
static struct layout layout;

static int begin(void **state) {
        params = (struct params){ 0 };
        layout = (struct layout){ 0 };
        return 0;
}

static int end(void **state) {
        layout_deinit(&layout);
        params_deinit(&params);
        return 0;
}

static void add(struct params *of, const char *name, unsigned dtype, uint64_t elements) {
        assert_int_equal(params_add(of, name, dtype, 1, &elements, NULL, 0), GRADSYNC_OK);
}

static void fill(struct params *of, const char *prefix, unsigned n, unsigned dtype, uint64_t elements) {
        char name[32];

        for (unsigned i = 0; i < n; i++) {
                snprintf(name, sizeof(name), "%s%u", prefix, i);
                add(of, name, dtype, elements);
        }
}

/* Checks the daemon's rules for layouts, which hold for any parameters. */
static void check_rules(const struct layout *made, const struct params *of) {
        uint64_t at = 0, payload = 0;
        uint32_t seen = 0, smallest = UINT32_MAX;

        assert_int_equal(made->control_bytes, diagnosis_bytes(of->n));
        for (uint32_t b = 0; b < made->n_buckets; b++) {
                const struct layout_bucket *bucket = &made->bucket[b];
                uint64_t end = bucket->offset, sum = 0;

                assert_true(bucket->n > 0);
                assert_int_equal(bucket->first, seen);
                assert_int_equal(bucket->offset % ARENA_PAGE, 0);
                assert_true(bucket->offset >= at);
                assert_true(made->order[bucket->first] <
                            smallest); /* launched by smallest parameter, descending */
                smallest = made->order[bucket->first];
                for (uint32_t k = 0; k < bucket->n; k++) {
                        uint32_t i = made->order[bucket->first + k];

                        assert_int_equal(made->bucket_of[i], b);
                        assert_int_equal(made->place[i], k);
                        assert_int_equal(of->list[i].dtype, bucket->dtype);
                        assert_int_equal(made->offset[i] % ARENA_ALIGN, 0);
                        assert_true(made->offset[i] >= end && made->offset[i] < end + ARENA_ALIGN);
                        assert_true(k == 0 || made->order[bucket->first + k - 1] < i);
                        end = made->offset[i] + of->list[i].bytes;
                        sum += of->list[i].bytes;
                }
                assert_int_equal(bucket->bytes, end - bucket->offset);
                assert_int_equal(bucket->payload, sum);
                seen += bucket->n;
                payload += sum;
                at = end;
        }
        assert_int_equal(seen, of->n);
        assert_int_equal(made->payload, payload);
        assert_int_equal(made->arena_bytes % ARENA_PAGE, 0);
        assert_true(made->arena_bytes >= at && made->arena_bytes < at + ARENA_PAGE);
}

static void plan(struct layout *made, struct params *of, uint64_t first, uint64_t limit) {
        assert_int_equal(layout_init(made, of, first, limit), GRADSYNC_OK);
        check_rules(made, of);
}

static struct gradsync_memory somewhere = { .map = { .bytes = 1 << 20 } },
                              elsewhere = { .map = { .bytes = 1 << 20 } };

static void put(struct params *of, const char *name, unsigned dtype, uint64_t elements,
                struct gradsync_memory *memory, uint64_t offset) {
        assert_int_equal(params_add(of, name, dtype, 1, &elements, memory, offset), GRADSYNC_OK);
}

TEST_WITH(test_a_bucket_closes_at_its_limit, begin, end) {
        fill(&params, "p", 10, GRADSYNC_F32, 256); /* 1 KiB each */
        plan(&layout, &params, 2 * KIB, 3 * KIB);
        assert_int_equal(layout.n_buckets, 4); /* 2, 3, 3 and 2 left over */
        assert_int_equal(layout.bucket[0].n, 2);
        assert_int_equal(layout.bucket[1].n, 3);
        assert_int_equal(layout.bucket[3].n, 2);
        assert_int_equal(layout.bucket_of[9], 0); /* the last registered is launched first */
        assert_int_equal(layout.bucket_of[0], 3);
}

TEST_WITH(test_parameters_are_never_split, begin, end) {
        fill(&params, "big", 3, GRADSYNC_F32, 10 * KIB);
        plan(&layout, &params, 1, 1);
        assert_int_equal(layout.n_buckets, 3);
        layout_deinit(&layout);
        plan(&layout, &params, 41 * KIB, 41 * KIB); /* one byte below two of them: the second closes it */
        assert_int_equal(layout.n_buckets, 2);
        assert_int_equal(layout.bucket[0].n, 2);
}

/* Parameters without gaps between them are cut as in an arena, wherever they begin. */
TEST_ALONE(test_registered_memory_without_gaps_is_cut_like_an_arena) {
        static const uint64_t elements[] = { 100, 3, 1000, 17, 256 };
        struct params here = { 0 }, there = { 0 };
        struct layout arena, memory;
        uint64_t at = 192;
        char name[16];

        for (unsigned i = 0; i < 5; i++) {
                snprintf(name, sizeof(name), "p%u", i);
                add(&here, name, GRADSYNC_F32, elements[i]);
                put(&there, name, GRADSYNC_F32, elements[i], &somewhere, at);
                at = (at + 4 * elements[i] + 63) / 64 * 64;
        }
        plan(&arena, &here, KIB, 4 * KIB);
        assert_int_equal(layout_init(&memory, &there, KIB, 4 * KIB), GRADSYNC_OK);
        assert_int_equal(memory.arena_bytes, 0);
        assert_int_equal(memory.control_bytes, diagnosis_bytes(5));
        assert_int_equal(memory.payload, arena.payload);
        assert_int_equal(memory.n_buckets, arena.n_buckets);
        for (uint32_t b = 0; b < arena.n_buckets; b++) {
                assert_int_equal(memory.bucket[b].bytes, arena.bucket[b].bytes);
                assert_int_equal(memory.bucket[b].payload, arena.bucket[b].payload);
                assert_ptr_equal(memory.bucket[b].memory, &somewhere);
                assert_int_equal(memory.bucket[b].offset,
                                 memory.offset[memory.order[memory.bucket[b].first]]);
        }
        for (uint32_t i = 0; i < 5; i++)
                assert_int_equal(memory.bucket_of[i], arena.bucket_of[i]);
        layout_deinit(&arena);
        layout_deinit(&memory);
        params_deinit(&here);
        params_deinit(&there);
}

TEST_WITH(test_gaps_and_other_memories_end_a_bucket, begin, end) {
        put(&params, "before", GRADSYNC_F32, 16, &somewhere, 0);
        put(&params, "touches", GRADSYNC_F32, 15, &somewhere, 64);
        put(&params, "gap", GRADSYNC_F32, 16, &somewhere, 192);
        put(&params, "type", GRADSYNC_I32, 16, &somewhere, 256);
        put(&params, "other", GRADSYNC_F32, 16, &elsewhere, 320);
        add(&params, "arena", GRADSYNC_F32, 16);
        put(&params, "back", GRADSYNC_F32, 16, &elsewhere, 0);
        put(&params, "below", GRADSYNC_F32, 16, &somewhere, 1024);
        put(&params, "descends", GRADSYNC_F32, 16, &somewhere, 960);
        assert_int_equal(layout_init(&layout, &params, KIB, KIB), GRADSYNC_OK);
        assert_int_equal(layout.n_buckets, 8);
        assert_int_equal(layout.bucket_of[0], layout.bucket_of[1]);
        assert_int_equal(layout.bucket[layout.bucket_of[0]].bytes, 64 + 60);
        assert_int_equal(layout.arena_bytes, ARENA_PAGE);
}

/* A gap closes the first bucket of a type, however small that is. Those after it have the usual limit. */
TEST_WITH(test_the_limit_after_a_gap, begin, end) {
        for (unsigned i = 0; i < 8; i++) {
                char name[] = { (char)('a' + i), 0 };

                put(&params, name, GRADSYNC_F32, 16, &somewhere, 64 * i);
        }
        put(&params, "after a gap", GRADSYNC_F32, 4, &somewhere, 1024);
        assert_int_equal(layout_init(&layout, &params, 128, 512), GRADSYNC_OK);
        assert_int_equal(layout.n_buckets, 2);
        assert_int_equal(layout.bucket[0].n, 1);
        assert_int_equal(layout.bucket[1].n, 8);
}

TEST_WITH(test_parameters_lie_in_their_memory, begin, end) {
        uint64_t elements = (1 << 18) - 16;

        assert_int_equal(params_add(&params, "a", GRADSYNC_F32, 1, &elements, &somewhere, 128),
                         GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "a", GRADSYNC_F32, 1, &elements, &somewhere, UINT64_MAX - 63),
                         GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "a", GRADSYNC_F32, 1, &elements, &somewhere, 64), GRADSYNC_OK);
}

TEST_WITH(test_padding_does_not_count, begin, end) {
        fill(&params, "p", 8, GRADSYNC_U8, 1); /* 8 bytes of payload in 7 × 64 + 1 bytes */
        plan(&layout, &params, 8, 8);
        assert_int_equal(layout.n_buckets, 1);
        assert_int_equal(layout.bucket[0].payload, 8);
        assert_int_equal(layout.bucket[0].bytes, 7 * ARENA_ALIGN + 1);
}

TEST_WITH(test_each_type_has_its_own_buckets_and_its_own_first_limit, begin, end) {
        char name[16];

        for (unsigned i = 0; i < 12; i++) {
                snprintf(name, sizeof(name), "p%u", i);
                add(&params, name, i % 2 ? GRADSYNC_F64 : GRADSYNC_BF16, 128);
        }
        plan(&layout, &params, 1, 100 * KIB);
        /* f64: 11 alone, then 9 7 5 3 1; bf16: 10 alone, then 8 6 4 2 0 */
        assert_int_equal(layout.n_buckets, 4);
        assert_int_equal(layout.bucket_of[11], 0);
        assert_int_equal(layout.bucket_of[10], 1);
        assert_int_equal(layout.bucket_of[9], layout.bucket_of[1]);
        assert_int_equal(layout.bucket_of[8], layout.bucket_of[0]);
        assert_int_equal(layout.bucket_of[1], 2); /* its smallest parameter is 1, the other's is 0 */
        assert_int_equal(layout.bucket_of[0], 3);
}

TEST_WITH(test_random_plans_keep_the_rules, begin, end) {
        uint32_t seed = 12345;

        for (unsigned round = 0; round < 300; round++) {
                unsigned n = 1 + (seed = seed * 1664525 + 1013904223) % 400;

                for (unsigned i = 0; i < n; i++) {
                        char name[16];

                        seed = seed * 1664525 + 1013904223;
                        snprintf(name, sizeof(name), "p%u", i);
                        add(&params, name, 1 + (seed >> 16) % 7, 1 + (seed >> 8) % 5000);
                }
                plan(&layout, &params, 1 + seed % 10000, 1 + (seed >> 4) % 100000);
                end(NULL);
                begin(NULL);
        }
}

TEST_WITH(test_limits_of_plans, begin, end) {
        assert_int_equal(layout_init(&layout, &params, 1, 1), GRADSYNC_STATE);
        fill(&params, "p", LIMIT_BUCKETS + 1, GRADSYNC_U8, 1);
        assert_int_equal(layout_init(&layout, &params, 1, 0), GRADSYNC_INVALID);
        assert_int_equal(layout_init(&layout, &params, 1, 1), GRADSYNC_INVALID);
        assert_non_null(strstr(fail_text(), "bucket_bytes"));
        plan(&layout, &params, 2, 2);
        layout_deinit(&layout);
        params_deinit(&params);
        fill(&params, "huge", 3, GRADSYNC_U8, LIMIT_ARENA / 2);
        assert_int_equal(layout_init(&layout, &params, 1, 1), GRADSYNC_INVALID);
}

TEST_WITH(test_names_are_unique_and_valid, begin, end) {
        uint64_t one = 1;
        char long_name[LIMIT_NAME + 2];

        fill(&params, "p", 1000, GRADSYNC_F32, 1);
        assert_int_equal(params.n, 1000);
        assert_int_equal(params_add(&params, "p500", GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        assert_non_null(strstr(fail_text(), "500"));
        assert_int_equal(params_add(&params, "", GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, NULL, GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "a\nb", GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "\xc3", GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        memset(long_name, 'x', sizeof(long_name));
        long_name[LIMIT_NAME + 1] = 0;
        assert_int_equal(params_add(&params, long_name, GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_INVALID);
        long_name[LIMIT_NAME] = 0;
        assert_int_equal(params_add(&params, long_name, GRADSYNC_F32, 1, &one, NULL, 0), GRADSYNC_OK);
        assert_int_equal(params.n, 1001);
}

TEST_WITH(test_shapes, begin, end) {
        const uint64_t shape[9] = { 2, 3, 4, 1, 1, 1, 1, 1, 1 };
        const uint64_t zero[2] = { 3, 0 }, wide[2] = { UINT64_C(1) << 40, UINT64_C(1) << 40 };

        assert_int_equal(params_add(&params, "scalar", GRADSYNC_F64, 0, NULL, NULL, 0), GRADSYNC_OK);
        assert_int_equal(params.list[0].bytes, 8);
        assert_int_equal(params_add(&params, "cube", GRADSYNC_F16, 3, shape, NULL, 0), GRADSYNC_OK);
        assert_int_equal(params.list[1].bytes, 48);
        assert_int_equal(params.list[1].shape[2], 4);
        assert_int_equal(params_add(&params, "eight", GRADSYNC_F16, 8, shape, NULL, 0), GRADSYNC_OK);
        assert_int_equal(params_add(&params, "nine", GRADSYNC_F16, 9, shape, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "zero", GRADSYNC_F16, 2, zero, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "wide", GRADSYNC_F16, 2, wide, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "none", GRADSYNC_F16, 1, NULL, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "type", 0, 1, shape, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params_add(&params, "type", 8, 1, shape, NULL, 0), GRADSYNC_INVALID);
        assert_int_equal(params.n, 3);
}
