/* SPDX-License-Identifier: Apache-2.0 */
/* Time as the library counts it: nanoseconds of CLOCK_MONOTONIC. */
#pragma once

#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC UINT64_C(1000000000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NEVER UINT64_MAX

static inline uint64_t clock_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/* Returns the time `ms` milliseconds from now; NEVER if that is too far away to be counted. */
static inline uint64_t clock_after_ms(uint64_t ms) {
        uint64_t now = clock_ns();

        return ms > (NEVER - now) / NSEC_PER_MSEC ? NEVER : now + ms * NSEC_PER_MSEC;
}
