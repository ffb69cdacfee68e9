/* SPDX-License-Identifier: Apache-2.0 */
#include "link/pulse.h"

#include <stddef.h>

/* Assumes that the other end has answered in the middle of the round trip. */
void pulse_add(struct pulse *pulse, uint64_t sent, uint64_t received, uint64_t wall, uint64_t their_clock,
               uint64_t their_wall) {
        uint64_t round_trip = received - sent, half = round_trip / 2;

        if (sent > received)
                return; /* it answers no question of ours */
        pulse->sample[pulse->n++ % PULSE_SAMPLES] =
                (struct pulse_sample){ .round_trip = round_trip,
                                       .clock = (int64_t)(their_clock - (received - half)),
                                       .wall = (int64_t)(their_wall - (wall - half)) };
}

const struct pulse_sample *pulse_best(const struct pulse *pulse) {
        const struct pulse_sample *best = NULL;

        for (unsigned i = 0; i < pulse->n && i < PULSE_SAMPLES; i++)
                if (best == NULL || pulse->sample[i].round_trip < best->round_trip)
                        best = &pulse->sample[i];
        return best;
}
