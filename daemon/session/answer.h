/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer to STATUS while it is made. It tells of things (the daemon, its clients, its jobs), each of which
 * has rows. Of the first thing of a piece rows may have been told before; and where the piece is full, the
 * thing knows how many of its rows have been told by then. Rows of a thing are numbered by what they are
 * about, so that one that stands for several places counts as so many.
 */
#pragma once

#include "session/private.h"

/* One process may be a member of many jobs: it is looked at once in an answer. A user has fewer processes
 * than these, unless the quota is raised. */
struct found {
        struct found_process {
                pid_t pid;
                bool threads;
                const char *state; /* NULL: no process has been looked at */
        } process[256];
        struct looks looks; /* that may still be taken */
};

/* What is looked at in an answer; in each job of it for a viewer from whom nothing is hidden. */
#define ANSWER_LOOKS ((struct looks){ .threads = 256, .marks = 131072 })

struct answer {
        struct sessions *sessions;
        const struct session *viewer; /* NULL: one that sees all */
        const char *asked;            /* the job, see status_asks_for() */
        uint64_t now;
        sessions_row_fn row;
        void *data;
        bool whole;         /* for a client: with what other nodes say; a row may stand for several places */
        uint32_t from, at;  /* rows of this thing: the first that is to be told, and the next one */
        size_t bytes, most; /* of frames; with `most` it is full */
        uint64_t end;       /* or when clock_now() is so much, UINT64_MAX: there is time */
        bool full;
        struct found found;
};

/* Whether the row that comes next is to be told; it costs less not to make one that is not. */
static inline bool answer_wants(const struct answer *answer) {
        return !answer->full && answer->at >= answer->from;
}

/* The next thing, of which so many rows have been told. */
void answer_begin(struct answer *answer, uint32_t from);
/* A row about so many; nothing happens if it is not to be told. */
void answer_give(struct answer *answer, uint32_t about, uint16_t type, const ProtobufCMessage *row);
/* A row that has not been made. */
void answer_skip(struct answer *answer);
/* As a sessions_row_fn, with the answer as its data. */
void answer_row(void *answer, uint16_t type, const ProtobufCMessage *row);
