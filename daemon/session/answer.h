/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer to STATUS while it is made. It consists of things (the daemon, its clients, its jobs), each of
 * which has rows. An earlier piece may have sent some rows of a piece's first thing; where a piece is full,
 * it is known how many rows of the current thing have been sent by then. A row that stands for several places
 * counts as so many rows.
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

/* The looks that one answer may take; for a viewer who sees all, each of its jobs may take as many. */
#define ANSWER_LOOKS ((struct looks){ .threads = 256, .marks = 131072 })

struct answer {
        struct sessions *sessions;
        const struct session *viewer; /* NULL: one that sees all */
        const char *asked;            /* the job, see status_asks_for() */
        uint64_t now;
        sessions_row_fn row;
        void *data;
        bool whole;         /* for a client: with rows of other nodes; a row may stand for several places */
        uint32_t from, at;  /* rows of this thing: the first one to be sent, and the next one */
        size_t bytes, most; /* of frames; `most` make it full */
        uint64_t end;       /* or when clock_now() is so much, UINT64_MAX: there is time */
        bool full;
        struct found found;
};

/* Whether the next row is to be sent. The caller can skip a row that is not, without making it. */
static inline bool answer_wants(const struct answer *answer) {
        return !answer->full && answer->at >= answer->from;
}

/* Starts the next thing, whose first `from` rows have been sent. */
void answer_begin(struct answer *answer, uint32_t from);
/* Sends a row that counts as `about` rows, if it is to be sent. */
void answer_give(struct answer *answer, uint32_t about, uint16_t type, const ProtobufCMessage *row);
/* Counts a row that has not been made. */
void answer_skip(struct answer *answer);
/* As a sessions_row_fn, with the answer as its data. */
void answer_row(void *answer, uint16_t type, const ProtobufCMessage *row);
