/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One daemon's answer to STATUS, put together from its frames. The snapshot owns the messages. Only
 * snapshot_fetch() talks to the daemon; everything else is pure except for memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/cli/ask/talk.h"

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
        Wire__StatusLink **link;     /* connections to other daemons */
        struct snapshot_job *job;
        size_t n_clients, n_links, n_jobs;
        Wire__StatusEnd *end; /* of the latest piece; NULL: none has ended */
        bool found;           /* the job asked for is there; true if none was asked for */
};

/* Takes one reply. 0: more replies follow; 1: this was the last one of a piece; -EPROTO: it is out of order
 * or no reply to STATUS; -ENOMEM. A row that stands for several places or waits is repeated as often. */
int snapshot_feed(struct snapshot *snapshot, uint16_t type, const void *payload, size_t length);
void snapshot_deinit(struct snapshot *snapshot);

/* Members that have a place, or come for one: all but the spares. */
size_t snapshot_places(const struct snapshot_job *job);

/* How often a job went on after it had lost a member. */
uint64_t snapshot_recoveries(const Wire__StatusJob *job);

/* Whether the wait is for a bucket of a step; other waits have no plan, bucket and step, whatever the frame
 * says. */
bool snapshot_wait_is_step(const Wire__StatusWait *wait);

/* Asks a greeted daemon; `job` NULL: for everything. The text of a failure is in talk->error. */
enum talk_result snapshot_fetch(struct talk *talk, const char *path, const char *job, struct snapshot *ret);
