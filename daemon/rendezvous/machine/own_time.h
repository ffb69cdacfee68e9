/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a machine. A driver's clock may jump in either direction, and its process may sleep; a machine
 * counts only so much of that as is safe for it, and its own time never goes back. Clocks of different
 * machines have nothing to do with each other. Header only.
 */
#pragma once

#include <stdint.h>

#include "rendezvous/machine/planted.h"

#define OWN_TIME_NEVER (UINT64_C(1) << 60) /* as a time that is counted from now */

struct own_time {
        uint64_t now, driver; /* at the latest call: its own, and the driver's */
};

static inline void own_time_begin(struct own_time *time, uint64_t driver) {
        *time = (struct own_time){ driver, driver };
}

/* At most `most` passes between two calls. If the clock has gone back, the time that has passed is not known:
 * `doubt` counts then, unless it is for ever. */
static inline uint64_t own_time_look(struct own_time *time, uint64_t driver, uint64_t most, uint64_t doubt) {
        uint64_t passed = driver - time->driver;

        if (planted(PLANTED_TRUSTS_CLOCKS))
                return time->now = time->driver = driver;
        if (driver < time->driver)
                passed = doubt < OWN_TIME_NEVER ? doubt : 0;
        else if (passed > most)
                passed = most;
        time->driver = driver;
        return time->now += passed;
}

static inline uint64_t own_time_to_driver(const struct own_time *time, uint64_t own) {
        return own == UINT64_MAX ? own : own - time->now + time->driver;
}
