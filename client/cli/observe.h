/* SPDX-License-Identifier: Apache-2.0 */
/* Asks every daemon that can be found for its status, and tells on stderr what stood in the way. */
#pragma once

#include "cli.h"
#include "snapshot.h"

struct observation {
        struct snapshot *snapshot;
        size_t n;
};

/* `job` NULL: all jobs; else only the daemons that have it are kept. Returns an exit code; with CLI_ERROR
 * there may be snapshots all the same, when one daemon answered and another did not. */
int observe(const struct cli *cli, const char *job, struct observation *ret);
void observation_deinit(struct observation *observation);
