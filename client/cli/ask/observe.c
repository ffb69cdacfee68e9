// SPDX-License-Identifier: Apache-2.0
/* Looks at all daemons that can be found: see observe.h. */
#include <string.h>

#include "client/cli/ask/ended.h"
#include "client/cli/ask/observe.h"
#include "client/cli/ask/sockets.h"
#include "client/cli/base/bundled.h"
#include "client/cli/base/escape.h"

static unsigned observe_patience(const struct cli *cli) {
        return cli->patience_ms ? cli->patience_ms : TALK_TIMEOUT;
}

/* Whether the daemon has what is asked for. */
static bool observe_look(const struct cli *cli, struct attempt *at, const struct inquiry *inquiry) {
        bool found = false;
        struct talk talk;

        at->result = talk_open(&talk, at->path, observe_patience(cli));
        if (!at->result)
                at->result = inquiry->ask(&talk, at->path, inquiry->job, inquiry->data, &found);
        memcpy(at->error, talk.error, sizeof at->error);
        talk_close(&talk);
        return !at->result && found;
}

static void observe_advise(const struct cli *cli, const struct sockets *sockets) {
        bool named = sockets->source == SOCKETS_FROM_OPTION || sockets->source == SOCKETS_FROM_VARIABLE;
        const char *place = named ? sockets->at[0].path : NULL;
        char text[ADVICE_TEXT];
        struct advice advice;

        bundled_advice(&advice);
        if (!advice_start(&advice, sockets_device(cli), place, "\n       or:  ", text, sizeof text))
                cli_complain("%s", text);
        else
                fprintf(stderr, "Start %s:  %s\n", named ? "it" : "one", text);
}

void observe_write_attempt(FILE *to, const char *path, const char *error) {
        _cleanup_(freep) char *where = escape_text(path), *what = escape_text(error);

        fprintf(to, "  tried %s: %s\n", where ? where : "?", what ? what : "?");
}

/* Lists the places that were asked, each with its error, in lines for people. NULL if memory is short. */
static char *observe_why(const struct sockets *sockets) {
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        if (!to)
                return NULL;
        for (size_t i = 0; i < sockets->n; i++)
                observe_write_attempt(to, sockets->at[i].path, sockets->at[i].error);
        fclose(to);
        return text;
}

int observe_nobody(const struct cli *cli, const struct sockets *sockets, const char *denied) {
        _cleanup_(freep) char *why = observe_why(sockets);
        const char *complaint = "no daemon is running";

        for (size_t i = 0; i < sockets->n; i++)
                if (sockets->at[i].result == TALK_DENIED)
                        complaint = denied;
        cli_complain("%s", complaint);
        fputs(why ? why : "", stderr);
        if (complaint == denied)
                return CLI_DENIED;
        observe_advise(cli, sockets);
        return CLI_NO_DAEMON;
}

/* Adds the job, if the daemon remembers it as ended. Returns whether the daemon answered. */
static bool observe_ask_ended(const struct cli *cli, const struct attempt *at, const char *job,
                              struct ended_jobs *ended) {
        struct talk talk;

        if (at->result)
                return false;
        enum talk_result r = talk_open(&talk, at->path, observe_patience(cli));
        if (!r)
                ended_fetch(&talk, job, ended);
        talk_close(&talk);
        return !r;
}

int observe_no_job(const struct cli *cli, const struct sockets *sockets, const char *job) {
        struct ended_jobs ended = { 0 };
        bool answered = false;

        for (size_t i = 0; i < sockets->n && !(sockets->one && answered); i++)
                answered = observe_ask_ended(cli, &sockets->at[i], job, &ended) || answered;
        if (ended.n > 0)
                ended_tell(&ended, cli_job_typed(cli, job));
        else
                cli_complain("there is no job \"%s\"; gradsyncctl list jobs shows which there are",
                             cli_job_typed(cli, job));
        ended_deinit(&ended);
        return CLI_UNKNOWN_JOB;
}

int observe_over(const struct cli *cli, const char *job) {
        struct sockets sockets;

        if (sockets_find_all(cli, &sockets) < 0)
                return cli_out_of_memory();
        int code = observe_no_job(cli, &sockets, job);
        sockets_deinit(&sockets);
        return code;
}

/* Whether a failure is reported although other daemons answered. A daemon that ends while it is asked counts
 * like one that had ended before. `again`: a daemon was seen before, and the next one may come. */
static bool observe_notable(enum talk_result result, bool again) {
        if (again && (result == TALK_SILENT || result == TALK_CUT))
                return false;
        return result != TALK_OK && result != TALK_ABSENT && result != TALK_GONE && result != TALK_DENIED;
}

static int observe_judge(const struct cli *cli, const struct inquiry *inquiry, const struct sockets *sockets,
                         size_t answered, size_t kept) {
        bool trouble = false;

        for (size_t i = 0; i < sockets->n; i++)
                if (observe_notable(sockets->at[i].result, inquiry->gone)) {
                        cli_complain("%s: %s", sockets->at[i].path, sockets->at[i].error);
                        trouble = true;
                }
        if (!answered && !trouble && inquiry->gone) {
                *inquiry->gone = observe_why(sockets);
                return *inquiry->gone ? CLI_NO_DAEMON : cli_out_of_memory();
        }
        if (!answered && !trouble)
                return observe_nobody(cli, sockets,
                                      "no daemon may be asked by you; gradsyncctl doctor says more");
        if (answered && !kept)
                return inquiry->gone ? CLI_UNKNOWN_JOB : observe_no_job(cli, sockets, inquiry->job);
        return trouble ? CLI_ERROR : CLI_OK;
}

int observe_each(const struct cli *cli, const struct inquiry *inquiry) {
        struct sockets sockets;
        size_t answered = 0, kept = 0;

        if (sockets_find_all(cli, &sockets) < 0)
                return cli_out_of_memory();
        for (size_t i = 0; i < sockets.n && !(sockets.one && answered); i++) {
                kept += observe_look(cli, &sockets.at[i], inquiry);
                answered += !sockets.at[i].result;
        }
        int code = observe_judge(cli, inquiry, &sockets, answered, kept);
        sockets_deinit(&sockets);
        return code;
}

static enum talk_result observe_add_snapshot(struct talk *talk, const char *path, const char *job, void *data,
                                             bool *ret_found) {
        struct observation *observation = data;
        struct snapshot *grown = realloc(observation->snapshot, (observation->n + 1) * sizeof *grown);

        if (!grown)
                return talk_fail(talk, TALK_FAILED, "out of memory");
        observation->snapshot = grown;
        enum talk_result r = snapshot_fetch(talk, path, job, &grown[observation->n]);
        if (r)
                return r;
        *ret_found = grown[observation->n].found;
        if (*ret_found)
                observation->n++;
        else
                snapshot_deinit(&grown[observation->n]);
        return TALK_OK;
}

int observe(const struct cli *cli, const char *job, struct observation *ret) {
        return observe_again(cli, job, NULL, ret);
}

int observe_again(const struct cli *cli, const char *job, char **gone, struct observation *ret) {
        *ret = (struct observation){ 0 };
        return observe_each(cli,
                            &(struct inquiry){
                                    .job = job, .ask = observe_add_snapshot, .data = ret, .gone = gone });
}

void observe_deinit(struct observation *observation) {
        for (size_t i = 0; i < observation->n; i++)
                snapshot_deinit(&observation->snapshot[i]);
        free(observation->snapshot);
        *observation = (struct observation){ 0 };
}
