/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer to STATUS while it is made. It consists of things (the daemon, its clients, its jobs), each of
 * which has rows. An earlier piece may have sent some rows of a piece's first thing; where a piece is full,
 * it is known how many rows of the current thing have been sent by then. A row that stands for several places
 * counts as so many rows.
 */
#pragma once

#include "base/proc.h"
#include "job/watch/waits.h"
#include "report/report.h"

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
        const struct query *query;
        uint64_t now;
        bool whole;         /* for a client: with rows of other nodes; a row may stand for several places */
        uint32_t from, at;  /* rows of this thing: the first one to be sent, and the next one */
        size_t bytes, most; /* of frames; `most` make it full */
        uint64_t end;       /* or when clock_now() is so much, UINT64_MAX: there is time */
        bool full;
        struct found found;
};

/* Whether the next row is to be sent. */
static inline bool answer_wants(const struct answer *answer) {
        return !answer->full && answer->at >= answer->from;
}

/* One without bounds, for the rows of this node. */
struct answer answer_to(const struct query *query);
/* Starts the next thing, whose first `from` rows have been sent. */
void answer_begin(struct answer *answer, uint32_t from);
/* Sends a row that counts as `about` rows, if it is to be sent. */
void answer_give(struct answer *answer, uint32_t about, uint16_t type, const ProtobufCMessage *row);
/* False if the next row is to be sent. Else counts it: it need not be made. */
bool answer_skips(struct answer *answer);
