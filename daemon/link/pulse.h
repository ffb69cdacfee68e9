/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how long a frame takes to another daemon and back, and how far its clocks are from ours, with
 * questions that it answers with its clocks. The fastest of the latest answers counts, because its way there
 * and back was the most even. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PULSE_SAMPLES 8u

struct pulse_sample {
        uint64_t round_trip; /* us */
        int64_t clock, wall; /* us that its monotonic clock, and its time of day, are ahead of ours */
};

struct pulse {
        unsigned n; /* number of answers so far */
        struct pulse_sample sample[PULSE_SAMPLES];
};

/* Adds an answer. All times are in us: `sent` and `received` by our monotonic clock, `wall` our time of day
 * when it was received. */
void pulse_add(struct pulse *pulse, uint64_t sent, uint64_t received, uint64_t wall, uint64_t their_clock,
               uint64_t their_wall);
/* Returns the sample that counts; NULL if there was no answer yet. */
const struct pulse_sample *pulse_best(const struct pulse *pulse);
