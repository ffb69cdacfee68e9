/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The story of gradsyncctl demo: train.c trains with the means of gradsyncctl run (run/run.h), disturbs the
 * second training and measures what follows; tell.c finds the words. The options and the order of the two
 * trainings are in cmd/demo.c. Everything that the demo says has been read from the daemon's status or from
 * the trainers' own output, or is a time between two things that were seen to happen.
 */
#pragma once

#include <stdint.h>

#include "client/cli/ask/snapshot.h"
#include "client/cli/run/run.h"

/* About 3,000 steps: the first quarter passes before the stop, half of them before the kill. */
#define DEMO_EPOCHS 100

enum { DEMO_STOPPED = 1, DEMO_KILLED = 2 }; /* the ranks that something happens to */

/* The result of one training. */
struct demo_training {
        uint64_t epoch_steps, steps; /* known once the first trainer has started */
        unsigned ended;              /* members that reported their end */
        bool differ;                 /* they did not all hold the same parameters */
        char hash[32];               /* of the parameters */
        double accuracy, seconds;
};

/* The member that the daemon named while the trainer was stopped. */
struct demo_stop {
        pid_t pid;
        uint64_t step; /* the open one */
        uint32_t bucket;
        char *parameter, *text;
        double named_ms;   /* from SIGSTOP to the answer that named it */
        double told_ms;    /* from SIGSTOP to the last of the other trainers' own messages */
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
        DEMO_TO_STOP,  /* trains until it is time to stop one trainer */
        DEMO_STOPPING, /* waits until the daemon names it */
        DEMO_NAMED,    /* waits until the other trainers have said so, and for the reader */
        DEMO_RESUMING, /* waits for the next committed step */
        DEMO_TO_KILL,
        DEMO_KILLING, /* waits for the first step that is committed after it */
        DEMO_LAST,    /* nothing more happens */
};

struct demo {
        struct run run;
        struct run_options options;
        struct talk talk;
        bool color, json;
        unsigned long pause_ms;
        char *trainer;
        enum demo_phase phase;
        struct demo_training undisturbed, disturbed;
        struct demo_training *training; /* the one that goes on */
        struct demo_stop stop;
        struct demo_kill kill;
        uint64_t until_step;
        /* CLOCK_MONOTONIC: the last signal, the last look at the status, and when the daemon named the
         * stopped one. */
        int64_t acted_us, looked_us, named_us;
};

/* Trains once under the private daemon, as demo->phase says. An exit code; failures are reported on stderr.
 * */
int demo_train(struct demo *demo, const char *job);
/* Reports that the daemon does not answer. The exit code. */
int demo_train_cannot_ask(const struct demo *demo);

/* ---- words; all are quiet with --json ---- */

void demo_tell(const struct demo *demo, const char *format, ...) __attribute__((format(printf, 2, 3)));
void demo_tell_act(const struct demo *demo, const char *title);
/* Something that a trainer wrote to its standard error. */
void demo_tell_line(const struct demo *demo, unsigned rank, const char *line, size_t length);
void demo_tell_pids(const struct demo *demo);
void demo_tell_trained(const struct demo *demo, const struct demo_training *training);
void demo_tell_named(const struct demo *demo);
void demo_tell_back(const struct demo *demo);
/* Whether both trainings came to the same parameters, in words and as the exit code. */
int demo_tell_end(const struct demo *demo);
