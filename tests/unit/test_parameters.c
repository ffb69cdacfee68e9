/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of plans: who shares them, what they cost, and how they go. */
#include "home_fixture.h"
#include "tests.h"

#include "gradsync.pb-c.h"
#include "proto/frame.h"

#define UID 1000u

static int setup(void **state) {
        struct at_home *f = calloc(1, sizeof(*f));

        home_open(f);
        *state = f;
        return 0;
}

static int teardown(void **state) {
        home_close(*state);
        free(*state);
        return 0;
}

#define TEST(name) TEST_OF(name, struct at_home *f, setup, teardown)

static struct parameters *of(struct at_home *f, uint32_t n) {
        struct parameters *p = NULL;

        assert_int_equal(parameters_new(&f->home, UID, n, &p, &f->refusal), 0);
        return p;
}

static int put(struct at_home *f, struct parameters **p, uint32_t index, const char *name, uint64_t rows) {
        uint64_t shape[] = { rows, 3 };
        struct offer_param from = { .name = name, .shape = shape, .dims = 2, .dtype = WIRE__DTYPE__F32 };

        return parameters_put(p, index, &from, 3 * rows, &f->refusal);
}

TEST(those_that_say_the_same_share) {
        struct parameters *a = of(f, 3), *b = parameters_ref(a);

        assert_int_equal(put(f, &a, 0, "x", 1), 0);
        assert_int_equal(put(f, &b, 0, "x", 1), 0);
        assert_int_equal(put(f, &b, 1, "y", 2), 0); /* is further now */
        assert_int_equal(put(f, &a, 1, "y", 2), 0);
        assert_int_equal(put(f, &a, 2, "z", 3), 0);
        uint64_t before = home_cost(f);
        assert_int_equal(put(f, &b, 2, "z", 3), 0);
        assert_ptr_equal(a, b);
        assert_int_equal(home_cost(f), before);
        assert_string_equal(parameters_at(a, 2)->name, "z");
        assert_int_equal(parameters_at(a, 2)->elements, 9);
        parameters_unref(a);
        assert_string_equal(parameters_at(b, 1)->name, "y");
        parameters_unref(b);
}

TEST(a_difference_begins_where_it_is) {
        struct parameters *a = of(f, 3), *b = parameters_ref(a), *same = parameters_ref(a), *other = of(f, 3);

        put(f, &a, 0, "x", 1);
        put(f, &a, 1, "y", 2);
        put(f, &a, 2, "z", 3);
        assert_int_equal(put(f, &b, 0, "x", 1), 0);
        assert_int_equal(put(f, &b, 1, "y", 4), 0); /* another shape */
        assert_ptr_not_equal(a, b);
        assert_int_equal(put(f, &b, 2, "z", 3), 0);
        assert_int_equal(b->shared, 1);
        assert_int_equal(parameters_at(b, 1)->elements, 12);
        assert_int_equal(parameters_at(a, 1)->elements, 6);
        assert_true(parameters_prefix(a, 1) == parameters_prefix(b, 1));
        assert_true(parameters_prefix(a, 2) != parameters_prefix(b, 2));
        assert_true(parameters_prefix(a, 3) != parameters_prefix(b, 3));
        /* the same digests however they came about */
        put(f, &other, 0, "x", 1);
        put(f, &other, 1, "y", 4);
        put(f, &other, 2, "z", 3);
        assert_true(parameters_prefix(other, 3) == parameters_prefix(b, 3));
        parameters_unref(a);
        assert_int_equal(put(f, &same, 0, "x", 1), 0);
        parameters_unref(same);
        assert_string_equal(parameters_at(b, 0)->name, "x"); /* kept by those that differ later */
        parameters_unref(b);
        parameters_unref(other);
}

TEST(names_are_used_once) {
        struct parameters *a = of(f, 4), *b = parameters_ref(a);

        put(f, &a, 0, "x", 1);
        put(f, &a, 1, "y", 1);
        put(f, &a, 2, "z", 1);
        assert_int_equal(put(f, &a, 3, "y", 1), WIRE__CODE__INVALID);
        assert_non_null(strstr(f->refusal.text, "two parameters are called \"y\""));
        assert_int_equal(put(f, &b, 0, "x", 1), 0);
        assert_int_equal(put(f, &b, 1, "z", 1), 0); /* that is the others' third */
        assert_int_equal(put(f, &b, 2, "x", 1), WIRE__CODE__INVALID);
        assert_int_equal(put(f, &b, 2, "z", 1), WIRE__CODE__INVALID);
        assert_int_equal(put(f, &b, 2, "y", 1), 0);
        assert_int_equal(put(f, &a, 3, "w", 1), 0);
        parameters_unref(a);
        parameters_unref(b);
}

static const char *long_name(uint32_t number) {
        static char name[LIMIT_NAME + 1];

        memset(name, 'n', LIMIT_NAME);
        snprintf(name + LIMIT_NAME - 8, 9, "%08u", number);
        return name;
}

TEST(they_go_a_piece_at_a_time) {
        uint32_t n = 20000;
        struct parameters *p = of(f, n);
        uint64_t names = 0;
        unsigned passes = 0;

        for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(put(f, &p, i, long_name(i), 1), 0);
                names += LIMIT_NAME + 1 + 16;
        }
        assert_true(home_cost(f) > names && home_cost(f) < names + names / 4 + n * 80);
        parameters_unref(p);
        while (home_cost(f) > 0) {
                uint64_t before = home_cost(f);

                f->home.freeing.fn(&f->home);
                assert_true(before - home_cost(f) <= (2u << 20));
                passes++;
        }
        assert_true(passes > names / (2u << 20));
        loop_defer_cancel(f->loop, &f->home.freeing);
}

TEST(they_are_charged_as_they_come) {
        static const uint64_t tight[ACCOUNT_SLOTS] = { [ACCOUNT_PLANS] = 100000 };
        struct parameters *p = NULL;
        uint32_t i = 0;

        accounts_set_limits(f->accounts, tight);
        assert_int_equal(parameters_new(&f->home, UID, 10000, &p, &f->refusal), WIRE__CODE__QUOTA);
        assert_non_null(strstr(f->refusal.text, "plan_bytes_per_uid"));
        assert_int_equal(home_cost(f), 0);
        p = of(f, 500);
        while (i < 500 && put(f, &p, i, long_name(i), 1) == 0)
                i++;
        assert_true(i > 100 && i < 500);
        assert_int_equal(f->refusal.code, WIRE__CODE__QUOTA);
        assert_true(home_cost(f) <= 100000);
        parameters_unref(p);
        p = of(f, 1);
        uint64_t before = home_cost(f);
        assert_int_equal(put(f, &p, 0, "small", 1), 0);
        assert_true(home_cost(f) - before < 512);
        parameters_unref(p);
}
