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

#define ENDINGS_MOST 64u
#define ENDING_TEXT 512u

enum ending_reason {
        ENDING_LEFT,       /* all members left in order */
        ENDING_LOST,       /* a member, or a node, was lost, and no process took the place */
        ENDING_EVICTED,    /* the same, and the member was evicted */
        ENDING_SUPERSEDED, /* a newer incarnation of the job has come */
        ENDING_SHUTDOWN,   /* the daemon stopped */
        ENDING_UNFORMED,   /* it never had all of its members */
        ENDING_GIVEN_UP,   /* by its coordinator, or because its members waited for each other */
        ENDING_REASONS,
};

struct job_ending {
        uint64_t sequence; /* 1, 2, … on this daemon; 0: there is none */
        uint32_t job;      /* its handle, as in struct record */
        uid_t uid;
        uint64_t incarnation, step; /* the last one committed */
        uint32_t generation, world; /* wanted, if it never formed */
        uint64_t at, wall;          /* clock_now(), clock_wall() */
        enum ending_reason reason;
        bool has_member; /* the job ended with the going of this one: */
        uint32_t rank;
        int32_t pid;
        char name[LIMIT_NAME + 1];
        char text[ENDING_TEXT]; /* one clause: "all 4 members left" */
};

struct endings { /* zero-initialised: empty */
        uint64_t sequence;
        struct job_ending ending[ENDINGS_MOST];
};

/* The name of a reason: "left" or "lost", for example. */
const char *ending_reason_name(enum ending_reason reason);
/* Keeps a copy. If there is no room, the oldest one of the uid that has most of them makes way. */
void endings_note(struct endings *endings, const struct job_ending *ending);
/* Returns the youngest ending that is older than the one with that sequence; UINT64_MAX: the youngest of all.
 * NULL if there is none. */
const struct job_ending *endings_before(const struct endings *endings, uint64_t sequence);
