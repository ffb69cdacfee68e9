/* SPDX-License-Identifier: Apache-2.0 */
/* The time of CLOCK_MONOTONIC, by which deadlines and intervals are measured. Header only. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t moment_us(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline int64_t moment_ms(void) {
        return moment_us() / 1000;
}
