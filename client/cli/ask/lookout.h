/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at daemons again and again, while one of them may end and another one take its place. A daemon or a
 * job that is missing at the first look is an error, as for commands that look only once; if it was seen
 * before, the caller waits for its return.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "client/cli/ask/observe.h"

struct lookout {
        const char *job;      /* NULL: all jobs */
        const char *asked;    /* the same, as the user typed it */
        bool waiting;         /* it was seen before, and is missing now */
        bool seen;            /* it was there at least once */
        struct lookout_home { /* a daemon that had the job when it was seen last */
                char *path;
                uint64_t instance;
        } * home;
        size_t homes;
        int64_t since_ms; /* when it was first missing */
        unsigned missed;  /* looks without it since then */
        char *why;        /* lines for people: the failure at each place; NULL: a new daemon lacks the job */
};

/* Like observe(), except for a daemon or a job that was seen before. If the daemon has ended or does not
 * answer, or if a new daemon does not have the job yet, it sets `waiting` and returns CLI_OK, with an empty
 * observation and no complaint. A job is looked for only at the daemons that had it when it was last seen. */
int lookout_look(struct lookout *lookout, const struct cli *cli, struct observation *ret);
/* Writes lines that say what is missing, since when, and why. */
void lookout_explain(const struct lookout *lookout, FILE *to);
void lookout_deinit(struct lookout *lookout);
