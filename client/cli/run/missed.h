/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds ranks that have ended with status 0 although others wait for them, to join the job or to finish a
 * step or a collective. Those wait in vain: a rank that has ended well is not started again. The daemon knows
 * which members wait, so it is asked (STATUS), again and again for as long as some ranks have ended and
 * others run. A child process asks: the daemon may be slow, and output and signals must not wait for it.
 */
#pragma once

#include <stdint.h>

struct run;

#define MISSED_TEXT 1024u

struct missed {
        int pipe;   /* from the child that asks; -1: there is none */
        int pidfd;  /* of that child */
        int64_t at; /* CLOCK_MONOTONIC ms of the next start of a child; 0: not at all */
        unsigned asked;
};

#define MISSED_INIT                                                                                          \
        { .pipe = -1, .pidfd = -1 }

/* A rank has ended with status 0: the daemon is asked soon. */
void missed_begin(struct missed *missed);
/* Starts the child if it is time. 0, or a negative errno; missed->pipe is to be read once it is readable. */
int missed_ask(struct missed *missed, const struct run *run);
/* Takes the child's answer: a sentence about the ranks that wait in vain, or "". The next question is due
 * later. */
void missed_take(struct missed *missed, char text[MISSED_TEXT]);
void missed_deinit(struct missed *missed);
