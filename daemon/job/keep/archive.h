/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How jobs have ended on this daemon: a few facts and a sentence about each of the last ones, for people who
 * come too late to see the job. The number of places is fixed, and they are made once, so no uid is charged
 * for them. A user with many short jobs does not make the daemon forget those of others. Pure, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/frame.h"

#define ARCHIVE_MOST 64u
#define ARCHIVE_TEXT 512u

enum archive_reason {
        ARCHIVE_LEFT,       /* all members left in order */
        ARCHIVE_LOST,       /* a member, or a node, was lost, and no process took the place */
        ARCHIVE_EVICTED,    /* the same, and the member was evicted */
        ARCHIVE_SUPERSEDED, /* a newer incarnation of the job has come */
        ARCHIVE_SHUTDOWN,   /* the daemon stopped */
        ARCHIVE_UNFORMED,   /* it never had all of its members */
        ARCHIVE_GIVEN_UP,   /* by its coordinator, or because its members waited for each other */
        ARCHIVE_REASONS,
};

struct archived_job {
        uint64_t sequence; /* 1, 2, … on this daemon; 0: there is none */
        uint32_t job;      /* its handle, as in struct record */
        uid_t uid;
        uint64_t incarnation, step; /* the last one committed */
        uint32_t generation, world; /* wanted, if it never formed */
        uint64_t at, wall;          /* clock_now(), clock_wall() */
        enum archive_reason reason;
        bool has_member; /* the job ended with the going of this one: */
        uint32_t rank;
        int32_t pid;
        char name[LIMIT_NAME + 1];
        char text[ARCHIVE_TEXT]; /* one clause: "all 4 members left" */
};

struct archive { /* zero-initialised: empty */
        uint64_t sequence;
        struct archived_job job[ARCHIVE_MOST];
};

/* The name of a reason: "left" or "lost", for example. */
const char *archive_reason_name(enum archive_reason reason);
/* Keeps a copy. If there is no room, the oldest one of the uid that has most of them makes way. */
void archive_add(struct archive *archive, const struct archived_job *job);
/* Returns the youngest job that is older than the one with that sequence; UINT64_MAX: the youngest of all.
 * NULL if there is none. */
const struct archived_job *archive_before(const struct archive *archive, uint64_t sequence);
