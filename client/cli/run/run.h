/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of gradsyncctl run. daemon.c owns the private daemon; members.c starts and ends the members;
 * variables.c sets their environment; missed.c finds out whether they wait for one that has ended; output.c
 * relays their output; notices.c follows the daemon's log; stop.c ends the members; relay.c is the loop.
 * There is one thread; all signals of interest are blocked and read from a signalfd. cmd/run.c reads the
 * options of the command, and decides the order in which things start and end.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/cli/base/cli.h"
#include "client/cli/run/lines.h"
#include "client/cli/run/missed.h"
#include "client/cli/run/notices.h"

struct run_options {
        unsigned long members;
        unsigned long grace_ms;
        const char *job;
        bool always_private;
        bool keep_going;
        const char *log_dir; /* NULL: none */
        bool bare; /* the only member is a part of this program: it writes to the streams itself, and says
                      why it fails */
        unsigned long restarts; /* of each member */
        struct cli_list daemon_args;
        char **command; /* NULL-terminated */
};

/* ---- the private daemon ---- */

struct run_daemon {
        char *directory; /* NULL: there is none */
        char *socket;
        char *log;      /* its file */
        off_t log_from; /* the offset at which the lines of this daemon begin */
        pid_t pid;
        int pidfd;
        int lock; /* daemon.pid, locked for as long as this program lives */
        int notify;
        const char *device;
        unsigned restarts; /* since counted_ms */
        int64_t counted_ms;
};

#define RUN_DAEMON_INIT                                                                                      \
        { .pidfd = -1, .lock = -1, .notify = -1 }

/* Makes the directory, starts gradsyncd in it and waits until it answers. An exit code; failures are reported
 * on stderr. The wait is given up when `signal_fd` becomes readable. run_daemon_stop() is needed whatever the
 * result. */
int run_daemon_start(struct run_daemon *daemon, const char *device, const struct run_options *options,
                     int signal_fd, const sigset_t *mask);
/* The daemon has ended: reaps it and starts another one in its place, which the members find by themselves.
 * `ret_how` becomes a text about the end. False if no new daemon could be started, or if daemons have ended
 * too often. A daemon that has not ended stays, and the text is empty. */
bool run_daemon_restart(struct run_daemon *daemon, const struct run_options *options, const sigset_t *mask,
                        char *ret_how, size_t size);
/* Writes the last lines of its log to stderr. */
void run_daemon_show_log(const struct run_daemon *daemon);
/* Ends the daemon and removes the directory; does nothing if there is none. `keep`: the log stays, in a file
 * beside the directory, and its path is shown. */
void run_daemon_stop(struct run_daemon *daemon, bool keep);

/* ---- members ---- */

enum { RUN_STDOUT, RUN_STDERR, RUN_STREAMS };

struct run_member {
        unsigned rank;
        unsigned long restarts; /* so far */
        pid_t pid;             /* also its process group; reaped last, so that the number is not used again */
        int pidfd;             /* -1 once it has ended */
        bool done;             /* with status 0 */
        int result;            /* exit status that its failure means */
        char how[96];          /* the same in words */
        int64_t started;       /* CLOCK_MONOTONIC ms */
        int64_t due;           /* when it is started again; 0: not at all */
        char *loss;            /* the daemon's notice of its loss, if not shown yet; NULL: none */
        int64_t loss_due;      /* when the notice is shown, unless the process ends before */
        unsigned long quick;   /* how often in a row it has ended soon after a start */
        int log;               /* of --log-dir; -1: none */
        int pipe[RUN_STREAMS]; /* -1 at end of file */
        struct lines lines[RUN_STREAMS];
};

struct run {
        const struct run_options *options;
        struct run_daemon daemon;
        struct run_member *member;
        unsigned n_members; /* started */
        const char *socket;
        const char *job;
        const char *token; /* of a job whose name this program has made up; NULL: the caller's, if any */
        char *example; /* the example program that the command names, if PATH has no program of that name */
        struct missed missed;
        sigset_t mask; /* the mask before any signal was blocked, for children */
        int signal_fd;
        int epoll_fd;
        struct notices notices;
        int64_t pause_most_ms; /* between starts of a member */
        bool color[RUN_STREAMS];
        bool terminal[RUN_STREAMS]; /* a progress bar may be redrawn there */
        int screen;                 /* the stream on which bars are drawn; -1: none */
        unsigned drawn;             /* rows with bars that are there now, above the cursor */
        bool redraw;                /* they are out of date */
        bool gone[RUN_STREAMS];     /* the reader of this program's stream has gone */
        bool interrupted;           /* a signal is the reason of the end */
        bool signalled;             /* a signal has been passed on: the next one kills */
        bool unheard;               /* the end of the reader of the output is the reason of the end */
        bool stopping;              /* the members have been asked to end */
        bool killed;                /* they have been killed */
        int result;
        int64_t deadline; /* CLOCK_MONOTONIC ms; 0: none */
};

/* Starts one more member. An exit code: 126 and 127 as in shells where the command cannot run. */
int run_member_start(struct run *run, unsigned rank);
/* The rank of the running member to which the process belongs: as its own process, or as one that it has
 * started. -1: none. */
int run_member_of(const struct run *run, pid_t pid);
/* Starts a member again that has ended, in its place; its remaining processes are killed and reaped first. */
int run_member_restart(struct run *run, unsigned rank);
/* Starts all of them, or as many as can be started. An exit code. */
int run_members_start(struct run *run);
/* Kills and reaps all remaining processes of the members, and those that they started. */
void run_members_end(struct run *run);

/* ---- their environment ---- */

/* Sets the variables that all members have in common, in this program's own environment. */
void run_set_common_variables(const struct run *run);
/* The longest pause between two starts of a member, in milliseconds: its place must be kept meanwhile, and
 * while it starts. To be called after run_set_common_variables(). */
int64_t run_longest_pause(void);
/* Sets the variables that make this process the member of that rank; runs in the child. */
void run_set_member_variables(unsigned rank);

/* ---- the loop ---- */

/* Blocks the signals that relay_run() reads, and prepares its epoll. 0 or a negative errno. */
int relay_prepare(struct run *run);
/* Relays until all members have ended; run->result is the exit code then. */
void relay_run(struct run *run);
