/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of a step on their way to the members. All members of a job hear the same, so a STEP frame is
 * gathered once per loop pass, packed once, and sent to each of them.
 */
#pragma once

#include <stdint.h>

#include "gradsync.pb-c.h"
#include "job/job.h"
#include "proto/frame.h"

#define RESULTS_NUMBERS 8192u /* per-rank values in one frame: more would not fit it */
#define RESULTS_UNUSED 16384u /* bytes of unused maps in one frame */

struct sessions;

struct results {
        struct sessions *sessions;
        struct loop_deferred flush;
        uint32_t job; /* 0: empty */
        Wire__Step step;
        Wire__BucketResult entries[LIMIT_RESULTS];
        Wire__BucketResult *entry[LIMIT_RESULTS];
        double sums[RESULTS_NUMBERS];
        uint64_t counts[RESULTS_NUMBERS];
        uint8_t unused[RESULTS_UNUSED];
        uint32_t used_numbers, used_unused, used_bytes;
        char text[sizeof(((struct job *)NULL)->loss_text)];
};

void results_init(struct results *results, struct sessions *sessions);
void results_deinit(struct results *results);
/* See enum job_event_kind: RESULT, COMMITTED and VOID. */
void results_add(struct results *results, const struct plan *plan, const struct job_event_result *event);
void results_commit(struct results *results, const struct plan *plan);
void results_void(struct results *results, const struct plan *plan);
/* Sends what has been gathered. */
void results_flush(struct results *results);
