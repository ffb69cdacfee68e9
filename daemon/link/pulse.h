/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a frame takes to another daemon and back, and how far its clocks are from ours: from questions
 * that it answers with its clocks. Of the latest answers the fastest one counts, because its way was the most
 * even. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PULSE_SAMPLES 8u

struct pulse_sample {
        uint64_t round_trip; /* us */
        int64_t clock,
                wall; /* us that its clocks are ahead of ours: the monotonic one, and the time of day */
};

struct pulse {
        unsigned n; /* answers so far */
        struct pulse_sample sample[PULSE_SAMPLES];
};

/* All in us; `sent`, `received` by our monotonic clock, `wall` our time of day when it was received. */
void pulse_add(struct pulse *pulse, uint64_t sent, uint64_t received, uint64_t wall, uint64_t their_clock,
               uint64_t their_wall);
/* NULL: there was no answer yet. */
const struct pulse_sample *pulse_best(const struct pulse *pulse);
