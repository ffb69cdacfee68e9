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

/* Something that each daemon is asked after the greeting. `ask` stores whether the daemon has the job; on
 * failure the text is in talk->error. */
struct inquiry {
        const char *job; /* NULL: all jobs */
        enum talk_result (*ask)(struct talk *talk, const char *path, const char *job, void *data,
                                bool *ret_found);
        void *data;
};

/* Asks all daemons that can be found. Returns an exit code: that of an unknown job if no daemon has it. */
int observe_each(const struct cli *cli, const struct inquiry *inquiry);

/* `job` NULL: all jobs; else only the daemons that have it are kept. Returns an exit code. There may be
 * snapshots although it is CLI_ERROR: one daemon has answered, another has not. */
int observe(const struct cli *cli, const char *job, struct observation *ret);
void observe_deinit(struct observation *observation);

/* Says on stderr that no daemon has answered, why each has not, and how to start one; or `denied`, if there
 * is one that does not serve this user. Returns the exit code. */
int observe_nobody(const struct cli *cli, const struct sockets *sockets, const char *denied);
/* Says on stderr that no daemon has the job. Returns the exit code. */
int observe_no_job(const char *job);
