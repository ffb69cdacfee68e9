// SPDX-License-Identifier: Apache-2.0
/* Daemons that come and go: see lookout.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static void lookout_forget_homes(struct lookout *lookout) {
        for (size_t i = 0; i < lookout->homes; i++)
                free(lookout->home[i].path);
        free(lookout->home);
        lookout->home = NULL;
        lookout->homes = 0;
}

/* 0 or -ENOMEM. */
static int lookout_remember_homes(struct lookout *lookout, const struct observation *seen) {
        lookout_forget_homes(lookout);
        lookout->home = calloc(seen->n, sizeof *lookout->home);
        if (!lookout->home)
                return -ENOMEM;
        for (size_t i = 0; i < seen->n; i++) {
                struct lookout_home *home = &lookout->home[i];

                *home = (struct lookout_home){ strdup(seen->snapshot[i].path),
                                               seen->snapshot[i].daemon->instance };
                lookout->homes++;
                if (!home->path)
                        return -ENOMEM;
        }
        return 0;
}

/* The daemon that answers at a place where the job was seen. */
enum lookout_found { LOOKOUT_NOBODY, LOOKOUT_ANOTHER, LOOKOUT_THE_SAME };

/* Asks at `home`. If no daemon answers, `why` gets a line about that. */
static enum lookout_found lookout_visit(const struct lookout *lookout, const struct lookout_home *home,
                                        FILE *why) {
        enum lookout_found found = LOOKOUT_NOBODY;
        struct snapshot snapshot = { 0 };
        struct talk talk;
        enum talk_result r = talk_open(&talk, home->path, TALK_TIMEOUT);

        if (!r)
                r = snapshot_fetch(&talk, home->path, lookout->job, &snapshot);
        if (r) {
                observe_write_attempt(why, home->path, talk.error);
        } else {
                found = snapshot.daemon->instance == home->instance ? LOOKOUT_THE_SAME : LOOKOUT_ANOTHER;
                snapshot_deinit(&snapshot);
        }
        talk_close(&talk);
        return found;
}

/* No daemon has the job any more. If a daemon that had it still runs, the job is over; a daemon that took its
 * place may get the job back from its members. */
static int lookout_seek(struct lookout *lookout, const struct cli *cli) {
        enum lookout_found best = LOOKOUT_NOBODY;
        char *text = NULL;
        size_t size;
        FILE *why = open_memstream(&text, &size);

        if (!why)
                return cli_out_of_memory();
        for (size_t i = 0; i < lookout->homes; i++) {
                enum lookout_found found = lookout_visit(lookout, &lookout->home[i], why);

                if (found > best)
                        best = found;
        }
        if (fclose(why) != 0) {
                free(text);
                return cli_out_of_memory();
        }
        if (best == LOOKOUT_NOBODY)
                return lookout_wait(lookout, text);
        free(text);
        if (best == LOOKOUT_ANOTHER)
                return lookout_wait(lookout, NULL);
        lookout->waiting = false;
        return observe_over(cli, lookout->job);
}

int lookout_look(struct lookout *lookout, const struct cli *cli, struct observation *ret) {
        char *gone = NULL;

        lookout->asked = cli_job_typed(cli, lookout->job);
        int code = observe_again(cli, lookout->job, lookout->seen ? &gone : NULL, ret);

        if (lookout->seen && code == CLI_NO_DAEMON)
                return lookout_wait(lookout, gone);
        free(gone);
        if (lookout->seen && code == CLI_UNKNOWN_JOB)
                return lookout_seek(lookout, cli);
        lookout->seen = lookout->seen || ret->n > 0;
        lookout->waiting = false;
        if (lookout->job && ret->n > 0 && lookout_remember_homes(lookout, ret) < 0)
                return cli_out_of_memory();
        return code;
}

void lookout_explain(const struct lookout *lookout, FILE *to) {
        _cleanup_(freep) char *job = escape_text(lookout->asked);
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
        lookout_forget_homes(lookout);
        free(lookout->why);
        *lookout = (struct lookout){ 0 };
}
