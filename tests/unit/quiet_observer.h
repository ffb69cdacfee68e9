/* SPDX-License-Identifier: Apache-2.0 */
/* An observer to which nothing of other nodes is known. */
#pragma once

#include "job/event/event.h"

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

static void on_posted(struct job *job, const struct hub_letter *letter) {}

static const struct jobs_observer quiet_observer = {
        .posted = on_posted,
        .inquire = on_inquire,
        .blame = on_blame,
        .host_of = on_host_of,
        .missing = on_missing,
};
