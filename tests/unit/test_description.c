/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as members describe them: what is refused, and how two are told apart. */
#include "home_fixture.h"
#include "tests.h"

#include "base/cleanup.h"
#include "gradsync.pb-c.h"
#include "job/plan/description.h"

struct fixture {
        struct at_home at;
        struct offer begin;
};

static int setup(void **state) {
        struct fixture *f = calloc(1, sizeof(*f));

        home_open(&f->at);
        f->begin.params = 2;
        f->begin.buckets = 1;
        f->begin.arena_bytes = 8192;
        f->begin.control_bytes = 4096;
        f->begin.reduce = WIRE__REDUCE__AVG;
        *state = f;
        return 0;
}

static int teardown(void **state) {
        struct fixture *f = *state;

        home_close(&f->at);
        free(f);
        return 0;
}

#define TEST(name) TEST_OF(name, struct fixture *f, setup, teardown)

static int begin(struct fixture *f, struct description **ret) {
        return description_new(&f->begin, &f->at.home, 1000, NULL, ret, &f->at.refusal);
}

static int add_param(struct fixture *f, struct description *d, const char *name, unsigned dtype,
                     uint64_t rows, uint64_t columns, uint32_t bucket) {
        struct offer_param param = { 0 };
        uint64_t shape[] = { rows, columns };

        param.name = name;
        param.dtype = dtype;
        param.dims = 2;
        param.shape = shape;
        param.bucket = bucket;
        return description_add_params(d, &param, 1, &f->at.refusal);
}

static int add_bucket(struct fixture *f, struct description *d, uint64_t offset, uint64_t bytes,
                      uint64_t payload) {
        struct offer_bucket bucket = { 0 };

        bucket.dtype = WIRE__DTYPE__F32;
        bucket.offset = offset;
        bucket.bytes = bytes;
        bucket.payload = payload;
        return description_add_buckets(d, &bucket, 1, &f->at.refusal);
}

/* Two parameters, of 10 f32 and of `rows` times 5. */
static struct description *begun(struct fixture *f, const char *second, uint64_t rows) {
        struct description *d = NULL;

        assert_int_equal(begin(f, &d), 0);
        assert_int_equal(add_param(f, d, "a", WIRE__DTYPE__F32, 2, 5, 0), 0);
        assert_int_equal(add_param(f, d, second, WIRE__DTYPE__F32, rows, 5, 0), 0);
        return d;
}

/* The two in one bucket. */
static struct description *good(struct fixture *f, const char *second, uint64_t rows) {
        struct description *d = begun(f, second, rows);

        assert_int_equal(add_bucket(f, d, 4096, 64 + rows * 20, 40 + rows * 20), 0);
        assert_int_equal(description_complete(d, &f->at.refusal), 0);
        return d;
}

/* The same two parameters in registered memory. */
static struct description *placed(struct fixture *f, uint64_t rows, uint64_t offset, int expected) {
        struct offer_bucket bucket = { 0 };
        struct description *d;

        f->begin.arena_bytes = 0;
        d = begun(f, "b", rows);
        f->begin.arena_bytes = 8192;
        bucket.dtype = WIRE__DTYPE__F32;
        bucket.offset = offset;
        bucket.bytes = 64 + rows * 20;
        bucket.payload = 40 + rows * 20;
        bucket.memory = 3;
        assert_int_equal(description_add_buckets(d, &bucket, 1, &f->at.refusal), expected);
        if (expected == 0)
                assert_int_equal(description_complete(d, &f->at.refusal), 0);
        return d;
}

static bool same_as(const struct description *a, const struct description *b) {
        return description_equal(a, "A", b, "B", (char[700]){ "" }, 700, &(const char *){ NULL });
}

/* Checks which difference is told between the plans, of A and of B, and of which parameter it is. */
static void differ(const struct description *a, const struct description *b, const char *told,
                   const char *whose) {
        const char *parameter;
        char text[700];

        assert_false(description_equal(a, "A", b, "B", text, sizeof(text), &parameter));
        assert_non_null(strstr(text, told));
        if (whose == NULL)
                assert_null(parameter);
        else
                assert_string_equal(parameter, whose);
}

TEST(buckets_in_registered_memory) {
        struct description *arena = good(f, "b", 4), *memory = placed(f, 4, 192, 0),
                           *far = placed(f, 4, 1 << 20, 0);
        struct description *longer = placed(f, 5, 192, 0);

        assert_false(arena->placed);
        assert_true(memory->placed);
        assert_true(same_as(arena, memory)); /* wherever they lie */
        assert_true(same_as(memory, arena));
        assert_true(same_as(memory, far));
        differ(arena, longer, "[5, 5] on B but [4, 5] on A", "b");
        description_free(arena);
        description_free(memory);
        description_free(far);
        description_free(longer);
        description_free(placed(f, 4, 32, WIRE__CODE__INVALID));
        assert_non_null(strstr(f->at.refusal.text, "not a multiple of 64"));
        description_free(placed(f, 4, UINT64_MAX - 63, WIRE__CODE__INVALID));
}

TEST(a_sound_plan_is_taken) {
        struct description *d = good(f, "b", 4);

        assert_int_equal(d->payload, 120);
        assert_int_equal(d->bucket[0].n, 2);
        assert_int_equal(description_settle(d), 0);
        assert_int_equal(d->order[1], 1);
        assert_true(home_cost(&f->at) > 0);
        description_free(d);
}

TEST(wrong_counts_and_sizes_are_refused_at_once) {
        static const struct {
                const char *what;
                uint32_t params, buckets;
                uint64_t arena_bytes, control_bytes;
                unsigned reduce;
        } rows[] = {
                { "no parameters", 0, 1, 8192, 4096, WIRE__REDUCE__AVG },
                { "too many parameters", LIMIT_PARAMS + 1, 1, 8192, 4096, WIRE__REDUCE__AVG },
                { "more buckets than parameters", 2, 3, 8192, 4096, WIRE__REDUCE__AVG },
                { "a part of a page", 2, 1, 8193, 4096, WIRE__REDUCE__AVG },
                { "all memory", 2, 1, UINT64_MAX / 4096 * 4096, 4096, WIRE__REDUCE__AVG },
                { "too large a control memory", 2, 1, 8192, 8192, WIRE__REDUCE__AVG },
                { "no control memory", 2, 1, 8192, 0, WIRE__REDUCE__AVG },
                { "no such reduction", 2, 1, 8192, 4096, 77 },
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                struct description *d;

                f->begin.params = rows[i].params;
                f->begin.buckets = rows[i].buckets;
                f->begin.arena_bytes = rows[i].arena_bytes;
                f->begin.control_bytes = rows[i].control_bytes;
                f->begin.reduce = rows[i].reduce;
                if (begin(f, &d) != WIRE__CODE__INVALID)
                        fail_msg("taken: %s", rows[i].what);
        }
}

TEST(the_announced_cost_is_charged) {
        static const uint64_t tight[ACCOUNT_SLOTS] = { [ACCOUNT_PLANS] = 4096 };
        struct description *d;

        accounts_set_limits(f->at.accounts, tight);
        f->begin.params = 1000;
        assert_int_equal(begin(f, &d), WIRE__CODE__QUOTA);
}

TEST(wrong_parameters_are_named) {
        struct description *d;

        assert_int_equal(begin(f, &d), 0);
        assert_int_equal(add_param(f, d, "", WIRE__DTYPE__F32, 1, 1, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, "a\nb", WIRE__DTYPE__F32, 1, 1, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, NULL, WIRE__DTYPE__F32, 1, 1, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, "w", 99, 1, 1, 0), WIRE__CODE__INVALID);
        assert_non_null(strstr(f->at.refusal.text, "\"w\""));
        assert_int_equal(add_param(f, d, "w", WIRE__DTYPE__F32, UINT64_MAX, 2, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, "w", WIRE__DTYPE__F32, 0, 2, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, "w", WIRE__DTYPE__F32, 1, 2, 1), WIRE__CODE__INVALID);
        assert_int_equal(add_param(f, d, "w", WIRE__DTYPE__I32, 1, 2, 0),
                         WIRE__CODE__INVALID); /* the average of integers */
        assert_int_equal(add_param(f, d, "a", WIRE__DTYPE__F32, 1, 1, 0), 0);
        assert_int_equal(add_param(f, d, "b", WIRE__DTYPE__F32, 1, 1, 0), 0);
        assert_int_equal(add_param(f, d, "c", WIRE__DTYPE__F32, 1, 1, 0),
                         WIRE__CODE__INVALID); /* more than announced */
        description_free(d);
}

TEST(wrong_buckets_are_named) {
        struct description *d;

        f->begin.buckets = 2;
        f->begin.arena_bytes = 16384;
        assert_int_equal(begin(f, &d), 0);
        assert_int_equal(add_bucket(f, d, 4100, 64, 64), WIRE__CODE__INVALID);
        assert_int_equal(add_bucket(f, d, 4096, 0, 0), WIRE__CODE__INVALID);
        assert_int_equal(add_bucket(f, d, 4096, 63, 63), WIRE__CODE__INVALID);
        assert_int_equal(add_bucket(f, d, 4096, UINT64_MAX - 4095, 64), WIRE__CODE__INVALID);
        assert_int_equal(add_bucket(f, d, UINT64_MAX - 4095, 4096, 64), WIRE__CODE__INVALID);
        assert_int_equal(add_bucket(f, d, 4096, 8192, 4), 0);
        assert_int_equal(add_bucket(f, d, 8192, 64, 4), WIRE__CODE__INVALID); /* overlaps the first */
        assert_int_equal(add_bucket(f, d, 12288, 64, 4), 0);
        assert_int_equal(add_bucket(f, d, 12288, 64, 4), WIRE__CODE__INVALID); /* more than announced */
        assert_int_equal(description_complete(d, &f->at.refusal),
                         WIRE__CODE__INVALID); /* parameters are missing */
        description_free(d);
}

TEST(two_parameters_have_two_names) {
        struct description *d;

        assert_int_equal(begin(f, &d), 0);
        add_param(f, d, "a", WIRE__DTYPE__F32, 2, 5, 0);
        assert_int_equal(add_param(f, d, "a", WIRE__DTYPE__F32, 4, 5, 0), WIRE__CODE__INVALID);
        assert_non_null(strstr(f->at.refusal.text, "two parameters are called \"a\""));
        description_free(d);
}

TEST(the_layout_must_hold_together) {
        static const struct {
                const char *what, *said;
                unsigned dtype; /* of "b" */
                uint64_t bytes, payload;
        } rows[] = {
                { "\"b\" starts at 64 and ends at 144", "\"b\"", WIRE__DTYPE__F32, 128, 120 },
                { "another dtype than its bucket", "\"b\"", WIRE__DTYPE__F64, 256, 120 },
                { "a payload that is not theirs", "", WIRE__DTYPE__F32, 192, 124 },
        };

        for (size_t i = 0; i < array_size(rows); i++) {
                struct description *d;

                assert_int_equal(begin(f, &d), 0);
                add_param(f, d, "a", WIRE__DTYPE__F32, 2, 5, 0);
                add_param(f, d, "b", rows[i].dtype, 4, 5, 0);
                assert_int_equal(add_bucket(f, d, 4096, rows[i].bytes, rows[i].payload), 0);
                if (description_complete(d, &f->at.refusal) != WIRE__CODE__INVALID ||
                    strstr(f->at.refusal.text, rows[i].said) == NULL)
                        fail_msg("%s: %s", rows[i].what, f->at.refusal.text);
                description_free(d);
        }
}

TEST(differences_are_told) {
        struct description *a = good(f, "b", 4), *same = good(f, "b", 4), *name = good(f, "c", 4),
                           *shape = good(f, "b", 6), *longer;

        assert_true(same_as(a, same));
        differ(a, name, "parameter 1 is \"c\" on B but \"b\" on A", "c");
        differ(a, shape, "parameter 1 \"b\" has shape [6, 5] on B but [4, 5] on A", "b");
        f->begin.params = 3;
        longer = begun(f, "b", 4);
        add_param(f, longer, "d", WIRE__DTYPE__F32, 1, 1, 0);
        add_bucket(f, longer, 4096, 256, 124);
        assert_int_equal(description_complete(longer, &f->at.refusal), 0);
        differ(a, longer, "parameter 2 \"d\"", "d");
        differ(longer, a, "parameter 2 \"d\"", "d");
        same->arena_bytes += 4096;
        differ(a, same, "", NULL);
        same->bucket[0].offset += 4096;
        differ(a, same, "bucket 0 has 144 bytes at 8192 on B but 144 at 4096 on A", NULL);
        same->voids = true;
        differ(a, same, "B has made it with void_on_loss, A without", NULL);
        same->reduce = WIRE__REDUCE__SUM;
        differ(a, same, "B wants the sum", NULL);
        description_free(a);
        description_free(same);
        description_free(name);
        description_free(shape);
        description_free(longer);
}
