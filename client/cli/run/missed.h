/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that have ended with status 0 while others join the job, or have begun what cannot end, and wait for
 * them: in vain, since a rank that has ended well is not started again. The daemon knows who waits, so it is
 * asked (STATUS), again and again for as long as some have ended and others run. A child process does that:
 * a daemon may be slow, and output and signals do not wait for it.
 */
#pragma once

#include <stdint.h>

struct run;

#define MISSED_TEXT 1024u

struct missed {
        int pipe;   /* from the child that asks; -1: there is none */
        int pidfd;  /* its */
        int64_t at; /* CLOCK_MONOTONIC ms at which the next one is started; 0: not at all */
        unsigned asked;
};

#define MISSED_INIT                                                                                          \
        { .pipe = -1, .pidfd = -1 }

/* A rank has ended with status 0: the daemon is asked soon. */
void missed_begin(struct missed *missed);
/* Starts the child if it is time. 0, or a negative errno; missed->pipe is to be read once it is readable. */
int missed_ask(struct missed *missed, const struct run *run);
/* What the child has found: a sentence about who waits for whom, or "". The next one is due later. */
void missed_take(struct missed *missed, char text[MISSED_TEXT]);
void missed_deinit(struct missed *missed);
