/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of the probe (tests/gpu/kernels.c) for the fake GPU. One that counts goes on for a while after
 * its process was killed: FAKE_GPU_LATE microseconds. FAKE_PROBE_PACE: milliseconds between two counts.
 */
#include <stdlib.h>
#include <time.h>

#include "tests/fakes/kernel.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT const struct fake_kernel *fake_kernels(size_t *n);

static uint64_t now_ns(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
        const char *value = getenv(name);

        return value != NULL ? strtoull(value, NULL, 10) : otherwise;
}

static void *pointer(void *parameter) {
        return *(void **)parameter;
}

static uint64_t number(void *parameter) {
        return *(uint64_t *)parameter;
}

static void idle_run(void **parameters, const unsigned grid[3], const unsigned block[3]) {}

static void bump_run(void **parameters, const unsigned grid[3], const unsigned block[3]) {
        uint32_t *words = pointer(parameters[0]), n = *(uint32_t *)parameters[1];

        for (uint32_t i = 0; i < n; i++)
                words[i]++;
}

static void bump_ranges(void **parameters, fake_range_fn add, void *data) {
        add(data, number(parameters[0]), 4 * (uint64_t) * (uint32_t *)parameters[1], true);
}

static void count_run(void **parameters, const unsigned grid[3], const unsigned block[3]) {
        volatile uint64_t *device = pointer(parameters[0]), *host = pointer(parameters[1]);
        uint64_t pace = setting("FAKE_PROBE_PACE", 0) * 1000000, n = *device;
        uint64_t end = now_ns() + number(parameters[2]) + 4 * pace;
        const struct timespec rest = { (time_t)(pace / 1000000000), (long)(pace % 1000000000) + 10000 };
        bool gone = false;

        do {
                *device = ++n;
                *host = n;
                nanosleep(&rest, NULL);
                if (!gone && fake_client_is_gone()) {
                        gone = true;
                        end = now_ns() + setting("FAKE_GPU_LATE", 100000) * 1000;
                }
        } while (now_ns() < end);
}

const struct fake_kernel *fake_kernels(size_t *n) {
        static const size_t bytes[] = { 8, 8, 8 }, bump_bytes[] = { 8, 4 };
        static const struct fake_kernel kernels[] = {
                { "idle", 0, bytes, idle_run, NULL },
                { "bump", 2, bump_bytes, bump_run, bump_ranges },
                { "count", 3, bytes, count_run, NULL },
        };

        *n = sizeof(kernels) / sizeof(kernels[0]);
        return kernels;
}
