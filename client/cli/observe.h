/* SPDX-License-Identifier: Apache-2.0 */
/* Asks every daemon that can be found for its status, and tells on stderr what stood in the way. */
#pragma once

#include "cli.h"
#include "snapshot.h"

struct places;

/* What came of one daemon. */
struct attempt {
        enum link_result result;
        char error[1280];               /* the link's, if it failed */
};

struct observation {
        struct snapshot *snapshot;
        size_t n;
};

/* Something to be asked of each daemon over a greeted link. `ask` says whether the daemon has the job; on
 * failure the text is in link->error. */
struct inquiry {
        const char *job; /* NULL: all jobs */
        enum link_result (*ask)(struct link *link, const char *path, const char *job, void *data,
                                bool *ret_found);
        void *data;
};

/* Asks all daemons that can be found. Returns an exit code: that of an unknown job if no daemon has it. */
int inquire(const struct cli *cli, const struct inquiry *inquiry);

/* `job` NULL: all jobs; else only the daemons that have it are kept. Returns an exit code; with CLI_ERROR
 * there may be snapshots all the same, when one daemon answered and another did not. */
int observe(const struct cli *cli, const char *job, struct observation *ret);
/* Says on stderr that no daemon has answered, why each has not, and how to start one; or, if one does not talk to this user, what `denied`
 * says. Returns the exit code. */
int observe_nobody(const struct cli *cli, const struct places *places, const struct attempt *attempts, const char *denied);
void observation_deinit(struct observation *observation);
