/* SPDX-License-Identifier: Apache-2.0 */
/* Monotonic time in microseconds. Nothing in the daemon is decided by wall-clock time. Header only. */
#pragma once

#include <stdint.h>
#include <time.h>

#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_PER_MSEC UINT64_C(1000)

static inline uint64_t clock_read(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return (uint64_t)now.tv_sec * USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t clock_now(void) {
        return clock_read(CLOCK_MONOTONIC);
}

/* Converts milliseconds that a client has sent. The result is bounded, so that a time can be added to it
 * without a wrap. */
static inline uint64_t clock_from_ms(uint64_t ms) {
        return ms > UINT64_MAX / 4 / USEC_PER_MSEC ? UINT64_MAX / 4 : ms * USEC_PER_MSEC;
}

/* CPU time of the calling thread. */
static inline uint64_t clock_thread_cpu(void) {
        return clock_read(CLOCK_THREAD_CPUTIME_ID);
}

/* CPU time of all threads of the process. */
static inline uint64_t clock_process_cpu(void) {
        return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

/* Seconds since 1970 by the host's clock, for display only. */
static inline uint64_t clock_wall(void) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return now.tv_sec > 0 ? (uint64_t)now.tv_sec : 0;
}
