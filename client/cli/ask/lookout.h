/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at daemons again and again, while one of them may end and another one take its place. What has been
 * seen once is waited for; what was never there is an error at the first look, as for those that look only
 * once.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "client/cli/ask/observe.h"

struct lookout {
        const char *job;      /* NULL: all jobs */
        const char *asked;    /* the same as it was typed */
        bool waiting;         /* what was seen before is not there now */
        bool seen;            /* it has been there */
        struct lookout_home { /* a daemon that had the job when it was seen last */
                char *path;
                uint64_t instance;
        } * home;
        size_t homes;
        int64_t since_ms; /* when it was missing first */
        unsigned missed;  /* looks since then */
        char *why; /* lines for people: what came of asking where. NULL: a daemon that is new lacks the job */
};

/* As observe(). If there is no daemon any more, or it does not answer, or the job is not back at one that is
 * new, CLI_OK and `waiting`: there is nothing in the observation then, and nothing was said. Of a job, only
 * the daemons that had it when it was seen last count, whatever others there are. */
int lookout_look(struct lookout *lookout, const struct cli *cli, struct observation *ret);
/* Lines about what is waited for, since when, and why. */
void lookout_explain(const struct lookout *lookout, FILE *to);
void lookout_deinit(struct lookout *lookout);
