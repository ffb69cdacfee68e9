/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that list themselves where they are written, and the main() that runs them. */
#pragma once

#include "unit.h"

static struct CMUnitTest tests[128];
static size_t n_tests;

static void tests_add(const char *name, CMUnitTestFunction run, CMFixtureFunction before,
                      CMFixtureFunction after) {
        if (n_tests == sizeof(tests) / sizeof(tests[0]))
                abort();
        tests[n_tests++] = (struct CMUnitTest){ name, run, before, after, NULL };
}

#define TEST_LIST(name, call, setup, teardown)                                                               \
        static void name##_run(void **state) {                                                               \
                call;                                                                                        \
        }                                                                                                    \
        __attribute__((constructor)) static void name##_list(void) {                                         \
                tests_add(#name, name##_run, setup, teardown);                                               \
        }

#define TEST_ALONE(name) TEST_WITH(name, NULL, NULL)

/* A test between a setup and a teardown, either of which may be NULL. */
#define TEST_WITH(name, setup, teardown)                                                                     \
        static void name(void);                                                                              \
        TEST_LIST(name, name(), setup, teardown)                                                             \
        static void name(void)

/* A test that is given what its setup has made: `argument` declares that. */
#define TEST_OF(name, argument, setup, teardown)                                                             \
        static void name(argument);                                                                          \
        TEST_LIST(name, name(*state), setup, teardown)                                                       \
        static void name(argument)

static inline int tests_run(CMFixtureFunction before, CMFixtureFunction after) {
        return _cmocka_run_group_tests("tests", tests, n_tests, before, after);
}

#ifndef TESTS_OWN_MAIN
int main(void) {
        return tests_run(NULL, NULL);
}
#endif
