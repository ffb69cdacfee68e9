/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last loss of a job, the time it took to recover, and totals of all recoveries: kept for status and
 * metrics. The job reports its events in their order; times are clock_now(). Pure, no allocation.
 *
 * A loss begins a recovery; the first step that is committed in a later generation ends it. A member that
 * leaves is no loss, though the generation ends with it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"
#include "rendezvous/machine/membership.h"

#define RECOVERY_CLASSES (LIMIT_RECOVERY_CLASSES - 1) /* of the histogram; a last one holds longer ones */

struct recovery {
        bool any, open;         /* a member was lost; and no step was committed since */
        uint32_t rank, cause;   /* in the generation that ended */
        uint32_t generation;    /* that ended */
        int32_t pid, successor; /* 0: none */
        uint64_t step;          /* the last one committed before */
        uint64_t void_steps;    /* that this loss cost */
        uint64_t noticed, told, regenerated, committed; /* 0: has not happened */
        uint64_t filling; /* us of the time until `told` that collectives under way took; 0: none */
        /* since the job began */
        uint64_t rebuilds[LIMIT_CAUSES];      /* new generations by cause; none: for growth */
        uint64_t recoveries, us;              /* that ended, and how long they took together */
        uint64_t class[RECOVERY_CLASSES + 1]; /* of them by that time, not cumulative */
};

/* Upper bounds in microseconds of the classes. */
extern const uint32_t recovery_class_us[RECOVERY_CLASSES];

void recovery_begin(struct recovery *recovery, const struct membership_loss *loss, uint32_t generation,
                    uint64_t step, uint64_t noticed);
/* An open step was given up; later, the frames that say so have been sent to all members that stay, of which
 * time `filling` went for collectives that had to end first. */
void recovery_void(struct recovery *recovery);
void recovery_told(struct recovery *recovery, uint64_t filling, uint64_t now);
/* There is a new generation; `successor` is the pid that has the lost rank now, 0 if no process came for
 * it. */
void recovery_regenerated(struct recovery *recovery, uint32_t cause, int32_t successor, uint64_t now);
void recovery_committed(struct recovery *recovery, uint64_t now);
