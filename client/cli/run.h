/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gradsyncctl run, in parts: cmd_run.c reads the options and decides the order of things; run_daemon.c owns
 * the private daemon; run_members.c starts the members; run_watch.c is the loop that relays output, forwards
 * signals and ends things. One thread; all signals of interest are blocked and read from a signalfd.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli.h"
#include "lines.h"

struct run_options {
        unsigned long members;
        unsigned long grace_ms;
        const char *job;
        bool always_private;
        bool keep_going;
        unsigned long restarts; /* of each member */
        const char **daemon_args;
        size_t n_daemon_args;
        char **command; /* NULL-terminated */
};

/* ---- the private daemon ---- */

struct run_daemon {
        char *directory; /* NULL: there is none */
        char *socket;
        pid_t pid;
        int pidfd;
        int lock; /* daemon.pid, locked for as long as we live */
        int notify;
        const char *device;
        unsigned restarts; /* lately: since the time below */
        int64_t counted_ms;
};

#define RUN_DAEMON_INIT                                                                                      \
        { .pidfd = -1, .lock = -1, .notify = -1 }

/* Makes the directory, starts gradsyncd in it and waits until it answers. An exit code; failures are told on
 * stderr. When `signal_fd` becomes readable the wait is given up. run_daemon_stop() is needed whatever the
 * result. */
int run_daemon_start(struct run_daemon *daemon, const char *device, const struct run_options *options,
                     int signal_fd, const sigset_t *mask);
/* It has ended: reaps it and starts another one in its place, which the members find by themselves. `*ret_how` says in what
 * way it ended. False if that could not be, or has been too often. */
bool run_daemon_restart(struct run_daemon *daemon, const struct run_options *options, const sigset_t *mask, char *ret_how,
                        size_t size);
/* What it logged last, on stderr. */
void run_daemon_show_log(const struct run_daemon *daemon);
/* Ends the daemon and removes the directory; nothing if there is none. */
void run_daemon_stop(struct run_daemon *daemon);

/* ---- members ---- */

enum { RUN_STDOUT, RUN_STDERR, RUN_STREAMS };

struct run_member {
        unsigned rank;
        unsigned long restarts; /* so far */
        pid_t pid;             /* also its process group; reaped last, so that the number stays ours */
        int pidfd;             /* -1 once it has ended */
        int pipe[RUN_STREAMS]; /* -1 at end of file */
        struct lines lines[RUN_STREAMS];
};

/* Whoever looks over the shoulder of run_watch(). */
struct run_watcher {
        void *data;
        /* Gets each line of the members' output, which goes nowhere else. */
        void (*line)(void *data, unsigned rank, int stream, const char *line, size_t length);
        /* Called after each round of events, and at least so often, while the members have not been asked to end: 0, or
         * the exit code to end with, after it has told why. */
        int (*look)(void *data);
        int interval_ms;
};

struct run {
        const struct run_options *options;
        const struct run_watcher *watcher; /* NULL: output is relayed to ours */
        struct run_daemon daemon;
        struct run_member *member;
        unsigned n_members; /* started */
        const char *socket;
        const char *job;
        sigset_t mask; /* before we blocked anything: what children get */
        int signal_fd;
        int epoll_fd;
        bool color[RUN_STREAMS];
        bool gone[RUN_STREAMS]; /* our reader has gone */
        bool stopping;          /* the members have been asked to end */
        bool killed;            /* they have been killed */
        int result;
        int64_t deadline; /* CLOCK_MONOTONIC ms; 0: none */
};

/* Starts one more member. An exit code: 126 and 127 as in shells where the command cannot run. */
int run_member_start(struct run *run, unsigned rank);
/* Starts one that has ended again, in its place; what was left of it is killed and reaped. */
int run_member_restart(struct run *run, unsigned rank);
void run_member_deinit(struct run_member *member);
/* Kills whatever is left of the members and of what they started, and reaps it. */
void run_members_end(struct run *run);

/* Blocks the signals that run_watch() is to read, and prepares what it waits with. 0 or a negative errno. */
int run_take_over_signals(struct run *run);

/* Relays until all members have ended; run->result is the exit code then. */
void run_watch(struct run *run);

int64_t run_now_ms(void);
