/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one daemon answered to STATUS, put together from its frames. Pure but for memory: frames in, lists
 * out; who asks is snapshot_fetch(). The messages belong to the snapshot.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link.h"

struct snapshot_job {
        Wire__StatusJob *job;
        Wire__StatusMember **member;
        Wire__StatusPlan **plan;
        Wire__StatusWait **wait;
        size_t n_members, n_plans, n_waits;
};

struct snapshot {
        char *path; /* the socket it came from */
        Wire__StatusDaemon *daemon;
        Wire__StatusClient **client; /* without tools that join no job */
        struct snapshot_job *job;
        size_t n_clients, n_jobs;
        bool found; /* the job asked for is there; true if none was asked for */
};

/* Takes one reply: 0 more to come, 1 that was the last, -EPROTO out of order or not a reply to STATUS,
 * -ENOMEM. */
int snapshot_feed(struct snapshot *snapshot, uint16_t type, const void *payload, size_t length);
void snapshot_deinit(struct snapshot *snapshot);

/* Members that have a place, or come for one: all but the spares. */
size_t snapshot_places(const struct snapshot_job *job);

/* Asks the daemon behind a greeted link; `job` NULL: everything. The text of a failure is in link->error. */
enum link_result snapshot_fetch(struct link *link, const char *path, const char *job, struct snapshot *ret);
