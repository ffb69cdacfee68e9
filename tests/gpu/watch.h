/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two kernels that count, as a process sees them that looks at both counts all the time: who counts runs. All
 * times are nanoseconds of one clock.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
        WATCH_BLIND_NS = 200 * 1000,        /* a longer interval says nothing: the process was away */
        WATCH_QUIET_NS = 100 * 1000 * 1000, /* without a count: the kernel has ended */
        WATCH_TURNS = 4096,
};

struct watch_totals { /* of the time in which both are under way */
        int64_t both, alone[2], neither;
        size_t turns;
};

struct watch {
        struct watch_totals totals, at[2]; /* now, and when each of them moved last */
        int64_t moved[2];                  /* last; 0: never */
        int64_t turn_begin;
        bool has_runner;
        unsigned runner;           /* whose turn it is, or was before both or neither ran */
        int64_t turn[WATCH_TURNS]; /* lengths, without that of the last one */
};

/* Which counts have moved between two looks. Returns whether a kernel has ended. */
bool watch_note(struct watch *watch, const bool moves[2], int64_t begin, int64_t end);

/* Until the end of the first that has ended; NULL: one has ended before the other began. */
const struct watch_totals *watch_end(const struct watch *watch);
