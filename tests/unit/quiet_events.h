/* SPDX-License-Identifier: Apache-2.0 */
/* Events of the job layer that tests answer without a word: nobody is asked who is waited for elsewhere, and
 * nothing is kept back. */
#pragma once

#include "job/job.h"

static bool on_inquire(struct job *job, uint64_t after) {
        return true;
}

static unsigned on_blame(struct job *job, const struct job_wait *wait, struct job_wait *waits, unsigned max) {
        return 0;
}

static void on_host_of(struct job *job, const struct membership_loss *loss, char *text, size_t size) {
        text[0] = '\0';
}

static void on_missing(struct job *job, char *text, size_t size) {
        text[0] = '\0';
}

static void on_ended(const struct job *job) {}

static void on_flush(struct job *job) {}

#define QUIET_EVENTS                                                                                         \
        .inquire = on_inquire, .blame = on_blame, .host_of = on_host_of, .missing = on_missing,              \
        .ended = on_ended, .flush = on_flush
