/* SPDX-License-Identifier: Apache-2.0 */
/* Asks every daemon that can be found, and reports on stderr what prevented an answer. */
#pragma once

#include "client/cli/ask/snapshot.h"
#include "client/cli/base/cli.h"

struct sockets;

struct observation {
        struct snapshot *snapshot;
        size_t n;
};

/* A request that each daemon gets after the greeting. `ask` stores whether the daemon has the job; on failure
 * the text is in talk->error. */
struct inquiry {
        const char *job; /* NULL: all jobs */
        enum talk_result (*ask)(struct talk *talk, const char *path, const char *job, void *data,
                                bool *ret_found);
        void *data;
        char **gone; /* NULL, or as for observe_again() */
};

/* Asks all daemons that can be found. Returns an exit code: that of an unknown job if no daemon has it. */
int observe_each(const struct cli *cli, const struct inquiry *inquiry);

/* `job` NULL: all jobs; else only the daemons that have it are kept. Returns an exit code. There may be
 * snapshots with CLI_ERROR, too: one daemon has answered, another one has failed. */
int observe(const struct cli *cli, const char *job, struct observation *ret);
/* The same. If `gone` is not NULL, a daemon that has ended or does not answer causes no complaint, and
 * neither do CLI_NO_DAEMON and CLI_UNKNOWN_JOB. With CLI_NO_DAEMON, *gone says why in lines for people; the
 * caller frees it. */
int observe_again(const struct cli *cli, const char *job, char **gone, struct observation *ret);
void observe_deinit(struct observation *observation);

/* Writes a line for people: the path that was tried, and the error. */
void observe_write_attempt(FILE *to, const char *path, const char *error);
/* Says on stderr that no daemon has answered, why, and how to start one; or `denied`, if a daemon is there
 * but does not serve this user. Returns the exit code. */
int observe_nobody(const struct cli *cli, const struct sockets *sockets, const char *denied);
/* Says on stderr that no daemon has the job; or how the job ended, if one of these daemons remembers it.
 * Returns the exit code. */
int observe_no_job(const struct cli *cli, const struct sockets *sockets, const char *job);
/* The same for all daemons that can be found now. */
int observe_over(const struct cli *cli, const char *job);
