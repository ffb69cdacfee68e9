// SPDX-License-Identifier: Apache-2.0
/* Daemons that come and go: see lookout.h. */
#include <stdlib.h>

#include "client/cli/ask/lookout.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/base/moment.h"

static int lookout_wait(struct lookout *lookout, char *why) {
        free(lookout->why);
        lookout->why = why;
        if (!lookout->waiting)
                lookout->since_ms = moment_ms();
        lookout->missed = lookout->waiting ? lookout->missed + 1 : 1;
        lookout->waiting = true;
        return CLI_OK;
}

int lookout_look(struct lookout *lookout, const struct cli *cli, struct observation *ret) {
        char *gone = NULL;
        int code = observe_again(cli, lookout->job, lookout->seen ? &gone : NULL, ret);

        if (lookout->seen && code == CLI_NO_DAEMON)
                return lookout_wait(lookout, gone);
        free(gone);
        if (lookout->seen && code == CLI_UNKNOWN_JOB) {
                /* A job that is over is over. A daemon that is new may get it back from its members. */
                if (lookout->waiting || ret->daemons != lookout->daemons)
                        return lookout_wait(lookout, NULL);
                return observe_over(cli, lookout->job);
        }
        lookout->seen = lookout->seen || ret->n > 0;
        lookout->waiting = false;
        lookout->daemons = ret->daemons;
        return code;
}

void lookout_explain(const struct lookout *lookout, FILE *to) {
        _cleanup_(freep) char *job = escape_text(lookout->job);
        uint64_t ms = (uint64_t)(moment_ms() - lookout->since_ms);
        char age[FORMAT_SIZE], since[FORMAT_SIZE + 8] = "";

        if (ms >= 1000)
                snprintf(since, sizeof since, " (%s)", format_age(age, ms));
        if (lookout->why)
                fprintf(to, "the daemon is gone, waiting for the next one%s\n%s", since, lookout->why);
        else
                fprintf(to, "the daemon has begun anew, waiting for job \"%s\"%s\n", job ? job : "", since);
}

void lookout_deinit(struct lookout *lookout) {
        free(lookout->why);
        *lookout = (struct lookout){ 0 };
}
