/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the job layer on their way to the members. Results of a step are gathered first: all members of a
 * job hear the same, so a STEP frame is packed once per loop pass, and sent to each of them.
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
/* Sends what has been gathered. */
void results_flush(struct results *results);

/* The data is the sessions. */
void sessions_on_event(void *data, const struct job_event *event);
