/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the rules of trace.h one by one. */
#include "tests.h"

#include "rendezvous/machine/trace.h"

static void assert_next_step(struct trace trace, bool open, bool prepared) {
        assert_int_equal(trace_is_open(&trace), open);
        assert_int_equal(trace_is_prepared(&trace), prepared);
}

static bool has_results(struct trace trace) {
        return trace_has_results(&trace);
}

TEST_ALONE(a_plan_without_a_mark_has_nothing_open) {
        assert_next_step((struct trace){ 0 }, false, false);
        assert_next_step((struct trace){ .committed = 5 }, false, false);
}

TEST_ALONE(a_step_is_open_from_its_first_mark_on) {
        assert_next_step((struct trace){ .committed = 5, .step = 6 }, true, false);
        assert_next_step((struct trace){ .step = 1 }, true, false);
}

TEST_ALONE(a_step_of_which_all_is_done_is_prepared) {
        assert_next_step((struct trace){ .committed = 5, .step = 6, .done = true }, true, true);
}

TEST_ALONE(a_committed_step_is_not_open) {
        assert_next_step((struct trace){ .committed = 6, .step = 6, .done = true }, false, false);
        assert_next_step((struct trace){ .committed = 6, .step = 5, .done = true }, false, false);
}

TEST_ALONE(results_are_those_of_the_last_committed_step) {
        assert_true(has_results((struct trace){ .committed = 6, .step = 6, .done = true }));
        assert_false(has_results((struct trace){ .committed = 6, .step = 6 }));
        assert_false(has_results((struct trace){ .committed = 6, .step = 5, .done = true }));
}

TEST_ALONE(the_next_step_takes_the_place_of_the_results) {
        assert_false(has_results((struct trace){ .committed = 6, .step = 7 }));
        assert_false(has_results((struct trace){ .committed = 6, .step = 7, .done = true }));
        assert_false(has_results((struct trace){ .committed = 6 })); /* the next step was void */
}
