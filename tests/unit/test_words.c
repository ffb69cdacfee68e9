/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from what members say after a restart: the rules of words.h, one by one. */
#include "tests.h"

#include <string.h>

#include "rendezvous/machine/words.h"

static struct word word[3];
static struct word_step about[3];
static struct trace trace;

/* Three members that have heard of step 5 and sent two READYs of the next one; nothing is left of the former
 * run. */
static void start(void) {
        memset(&trace, 0, sizeof(trace));
        for (unsigned i = 0; i < 3; i++) {
                word[i] = (struct word){ .told = true, .generation = 7 };
                about[i] = (struct word_step){ .known = true, .step = 5, .launched = 2 };
        }
}

static struct words_unit unit(void) {
        return words_unit(word, about, 3, &trace);
}

TEST_ALONE(a_step_that_all_have_begun_was_open) {
        start();
        assert_int_equal(unit().committed, 5);
        assert_true(unit().opened && unit().began);
        assert_false(unit().prepared);
}

TEST_ALONE(a_step_is_committed_if_one_has_heard_so) {
        start();
        about[1] = (struct word_step){ .known = true, .step = 6 };
        assert_int_equal(unit().committed, 6);
        assert_false(unit().opened);
        word[1].told = false; /* it is gone again */
        assert_int_equal(unit().committed, 5);
}

TEST_ALONE(nothing_is_begun_before_all_have_sent_something) {
        start();
        about[2].launched = 0;
        assert_false(unit().opened);
        assert_true(unit().began);
        start();
        word[2].generation = 6; /* its READYs were of the generation before */
        assert_false(unit().opened);
}

TEST_ALONE(nothing_is_begun_after_an_orderly_end) {
        start();
        for (unsigned i = 0; i < 3; i++)
                word[i].orderly = true;
        assert_false(unit().opened);
        word[0].orderly = false; /* it has not heard that, and nobody knows why */
        assert_true(unit().opened);
}

TEST_ALONE(the_trace_says_what_nobody_has_heard) {
        start();
        trace = (struct trace){ .known = true, .step = 6 };
        assert_false(unit().opened);
        trace.begun = true;
        assert_true(unit().opened);
        assert_false(unit().prepared);
        trace.done = true;
        assert_true(unit().opened && unit().prepared);
        trace.step = 5; /* no READY of step 6 had come */
        assert_false(unit().opened);
        trace.step = 7; /* of another plan's end: it says nothing */
        assert_true(unit().opened);
        assert_false(unit().prepared);
}

TEST_ALONE(results_go_to_those_that_had_sent_all) {
        start();
        trace = (struct trace){ .known = true, .step = 6, .begun = true, .done = true };
        assert_true(words_can_hear(&word[0], &about[0], 7, &trace, 6, 2));
        assert_false(words_can_hear(&word[0], &about[0], 7, &trace, 6, 3));
        assert_false(words_can_hear(&word[0], &about[0], 8, &trace, 6, 2));
        assert_false(words_can_hear(&word[0], &about[0], 7, &trace, 5, 2));
        about[0].step = 4;
        assert_false(words_can_hear(&word[0], &about[0], 7, &trace, 6, 2));
        about[0].step = 5;
        trace.done = false;
        assert_false(words_can_hear(&word[0], &about[0], 7, &trace, 6, 2));
}

TEST_ALONE(all_are_here_if_they_know_one_generation) {
        start();
        assert_int_equal(words_generation(word, 3), 7);
        assert_true(words_all_here(word, 3));
        word[0].ended = true;
        assert_false(words_all_here(word, 3));
        start();
        word[1].told = false;
        assert_false(words_all_here(word, 3));
        start();
        word[2].generation = 6; /* two have entered the next one: with something void before, */
        assert_false(words_all_here(word, 3));
        word[0].resumed = word[1].resumed = true; /* or with nothing */
        assert_true(words_all_here(word, 3));
        word[2].generation = 5;
        assert_false(words_all_here(word, 3));
}
