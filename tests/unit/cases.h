/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that enter themselves into the list of their program, in the order in which they stand in it, so that
 * none can be forgotten there. A program includes this header once, and has no main() of its own.
 *
 *     TEST(a_name) {
 *             assert_true(…);
 *     }
 */
#pragma once

#include "unit.h"

#define CASES_MOST 64

static struct CMUnitTest entered[CASES_MOST];
static size_t n_entered;

static inline void cases_enter(const struct CMUnitTest *test) {
        if (n_entered == CASES_MOST)
                __builtin_trap();
        entered[n_entered++] = *test;
}

#define TEST(name) TEST_WITH(name, NULL, NULL)
/* With functions that run before and after the test. */
#define TEST_WITH(name, set_up, tear_down)                                                                   \
        static void name(void **state);                                                                      \
        static __attribute__((constructor)) void name##_enter(void) {                                        \
                cases_enter(&(struct CMUnitTest)cmocka_unit_test_setup_teardown(name, set_up, tear_down));   \
        }                                                                                                    \
        static void name(void **state)

int main(void) {
        return _cmocka_run_group_tests("tests", entered, n_entered, NULL, NULL);
}
