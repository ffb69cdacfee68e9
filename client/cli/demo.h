/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsyncctl demo, in parts: cmd_demo.c reads the options, finds the trainer and trains twice, with the means of
 * gradsyncctl run (run.h); demo_acts.c disturbs the second run and measures what follows; demo_tell.c finds the
 * words. What is told has been read from the daemon's status or from the trainers' own output, or is a time between
 * two things that were seen to happen.
 */
#pragma once

#include <stdint.h>

#include "run.h"
#include "snapshot.h"

#define DEMO_EPOCHS 100 /* about 3,000 steps: the first quarter passes before the stop, half of them before the kill */

enum { DEMO_STOPPED = 1, DEMO_KILLED = 2 }; /* the ranks that something happens to */

/* What one training came to. */
struct demo_training {
        uint64_t epoch_steps, steps; /* known once the first trainer has started */
        unsigned ended;       /* members that told their end */
        bool differ;          /* … and did not hold the same parameters */
        char hash[32];        /* of the parameters */
        double accuracy, seconds;
};

/* Whom the daemon named while the trainer was stopped. */
struct demo_stop {
        pid_t pid;
        uint64_t step; /* the open one */
        uint32_t bucket;
        char *parameter, *text;
        uint64_t since_ms;
        double named_ms;   /* from SIGSTOP to the answer that named it */
        double told_ms;    /* … to the last of the others' own messages */
        double resumed_ms; /* from SIGCONT to the answer with the step committed */
        unsigned told;     /* members that have said so on their terminals */
};

/* What the daemon measured of the loss, on the clock that the kill was seen by. */
struct demo_kill {
        pid_t pid, successor;
        uint64_t step, void_steps;
        double noticed_ms, void_ms, committed_ms; /* from the kill; void_ms < 0: no step was open */
};

enum demo_phase {
        DEMO_UNDISTURBED,
        DEMO_TO_STOP,   /* trains until it is time to stop one */
        DEMO_STOPPING,  /* waits for the daemon to name it */
        DEMO_NAMED,     /* … and for the others to say so, and for the reader */
        DEMO_RESUMING,  /* waits for the next committed step */
        DEMO_TO_KILL,
        DEMO_KILLING,   /* waits for the first step that is committed after it */
        DEMO_LAST,      /* nothing more happens */
};

struct demo {
        struct run run;
        struct run_options options;
        struct link link;
        bool linked, color, json;
        unsigned long pause_ms;
        char *trainer;
        enum demo_phase phase;
        struct demo_training undisturbed, disturbed;
        struct demo_training *training; /* the one that goes on */
        struct demo_stop stop;
        struct demo_kill kill;
        uint64_t until_step;
        int64_t acted_us, looked_us, named_us; /* CLOCK_MONOTONIC: the last signal, the last look at status, … */
};

int64_t demo_now_us(void);

/* Trains once under the private daemon, as demo->phase says. An exit code; failures are told on stderr. */
int demo_train(struct demo *demo, const char *job);

/* ---- words; all are quiet with --json ---- */

void demo_tell(const struct demo *demo, const char *format, ...) __attribute__((format(printf, 2, 3)));
void demo_tell_act(const struct demo *demo, const char *title);
/* Something that a trainer wrote to its standard error. */
void demo_tell_line(const struct demo *demo, unsigned rank, const char *line, size_t length);
void demo_tell_start(const struct demo *demo);
void demo_tell_trained(const struct demo *demo, const struct demo_training *training);
void demo_tell_stopped(const struct demo *demo);
void demo_tell_named(const struct demo *demo);
void demo_tell_heard(const struct demo *demo);
void demo_tell_resumed(const struct demo *demo);
void demo_tell_killed(const struct demo *demo);
void demo_tell_back(const struct demo *demo);
/* Whether both trainings came to the same, in words and as the exit code. */
int demo_tell_end(const struct demo *demo);
