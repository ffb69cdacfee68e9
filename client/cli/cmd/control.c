// SPDX-License-Identifier: Apache-2.0
/*
 * gradsyncctl evict, pause, resume, drain: an operator's orders. Each goes to the first daemon that knows the
 * job it names; drain, and resume without a job, go to the one daemon that is meant.
 */
#include <string.h>
#include <time.h>

#include "client/cli/ask/observe.h"
#include "client/cli/ask/sockets.h"
#include "client/cli/ask/token.h"
#include "client/cli/base/format.h"
#include "client/cli/cmd/cmd.h"

#define NO_JOB "/"          /* asks a daemon for itself only */
#define LOOK_AGAIN 50000000 /* ns between two looks at what is still open */

static const struct order_kind {
        const char *name, *done;
        Wire__Verb verb;
} orders[] = {
        { "evict", "evicted", WIRE__VERB__EVICT },
        { "pause", "paused", WIRE__VERB__PAUSE },
        { "resume", "resumed", WIRE__VERB__RESUME },
        { "drain", NULL, WIRE__VERB__DRAIN },
};

struct order {
        Wire__Verb verb;
        const char *done; /* what has happened to the job then */
        const char *job;  /* NULL: the daemon */
        unsigned long rank;
        const char *token;
        bool no_wait;
};

/* 0 to go on, else 1 + the exit code. */
static int cmd_control_parse(struct cli *cli, struct order *order, int argc, char **argv) {
        const struct cli_option with_token = { "token", '\0', CLI_TEXT, .value = &order->token };
        const struct cli_option with_no_wait = { "no-wait", '\0', CLI_FLAG, .value = &order->no_wait };
        const struct cli_option *own = order->verb == WIRE__VERB__DRAIN ? &with_no_wait : &with_token;

        order->token = getenv(TOKEN_VARIABLE);
        int r = cli_options(cli, argc, argv, false, own, 1);
        if (r)
                return r;
        int words = argc - optind;
        order->job = words > 0 ? argv[optind] : NULL;
        if (order->verb == WIRE__VERB__EVICT && words != 2)
                return cli_refuse_option(cli, "evict wants a job and a rank");
        if (order->verb == WIRE__VERB__EVICT &&
            !cli_parse_number(argv[optind + 1], 0, LIMIT_WORLD, &order->rank))
                return cli_refuse_option(cli, "a rank is a number, not \"%s\"", argv[optind + 1]);
        if (order->verb == WIRE__VERB__PAUSE && words != 1)
                return cli_refuse_option(cli, "pause wants one job");
        if (order->verb == WIRE__VERB__RESUME && words > 1)
                return cli_refuse_option(cli, "resume takes one job at most");
        if (order->verb == WIRE__VERB__DRAIN && words > 0)
                return cli_refuse_option(cli, "drain takes no job; pause JOB holds one back");
        if (order->job && (!*order->job || strlen(order->job) > LIMIT_TEXT))
                return cli_refuse_option(cli, "\"%s\" is no name of a job", order->job);
        return order->job ? cli_job(cli, order->job, &order->job) : 0;
}

static enum talk_result cmd_control_say(struct talk *talk, const struct order *order, const char *token,
                                        Wire__ControlDone *ret) {
        Wire__Control control = WIRE__CONTROL__INIT;
        const ProtobufCMessage *reply;

        SET(control, verb, order->verb);
        control.job = (char *)order->job;
        SET_IF(control, rank, order->verb == WIRE__VERB__EVICT, (uint32_t)order->rank);
        control.token = order->job && token && *token ? (char *)token : NULL;
        enum talk_result r = talk_ask(talk, WIRE__MESSAGE_TYPE__CONTROL, &control.base,
                                      WIRE__MESSAGE_TYPE__CONTROL_DONE, "an order", &reply);
        if (!r)
                *ret = *(const Wire__ControlDone *)reply;
        return r;
}

/* The owner of a job may have no token to give, although the job has one. */
static enum talk_result cmd_control_give(struct talk *talk, const char *path, const struct order *order,
                                         Wire__ControlDone *ret) {
        enum talk_result r = cmd_control_say(talk, order, order->token, ret);
        char token[LIMIT_TOKEN + 1], error[sizeof talk->error];

        if (r != TALK_DENIED || !order->job || (order->token && *order->token))
                return r;
        memcpy(error, talk->error, sizeof error);
        if (token_find(talk, path, order->job, token))
                return cmd_control_say(talk, order, token, ret);
        memcpy(talk->error, error, sizeof error);
        return r;
}

/* Looks again and again until nothing is open any more. */
static int cmd_control_wait_quiet(struct talk *talk, const char *path, unsigned open) {
        static const struct timespec pause = { .tv_nsec = LOOK_AGAIN };
        bool draining = true;

        if (open > 0)
                fprintf(stderr, "gradsyncctl: %u step%s or collective%s still open; waiting\n", open,
                        format_plural(open), open == 1 ? " is" : "s are");
        while (open > 0 && draining) {
                struct snapshot snapshot;

                nanosleep(&pause, NULL);
                if (snapshot_fetch(talk, path, NO_JOB, &snapshot)) {
                        cli_complain("%s: %s", path, talk->error);
                        return CLI_ERROR;
                }
                open = snapshot.daemon->open;
                draining = snapshot.daemon->draining;
                snapshot_deinit(&snapshot);
        }
        if (!draining) {
                cli_complain("somebody has resumed the daemon meanwhile");
                return CLI_ERROR;
        }
        printf("quiet: nothing is open, and nothing new begins until gradsyncctl resume\n");
        return CLI_OK;
}

static int cmd_control_finish(struct talk *talk, const char *path, const struct order *order,
                              const Wire__ControlDone *done) {
        if (order->verb == WIRE__VERB__DRAIN && !order->no_wait)
                return cmd_control_wait_quiet(talk, path, done->open);
        if (order->verb == WIRE__VERB__DRAIN)
                printf("draining: %u open\n", done->open);
        else
                printf("%s\n", order->done);
        return CLI_OK;
}

enum outcome { OUTCOME_UNHEARD, OUTCOME_FAILED, OUTCOME_UNKNOWN_JOB, OUTCOME_ENDED };

static enum outcome cmd_control_try_daemon(struct attempt *at, const struct order *order, int *code) {
        Wire__ControlDone done = WIRE__CONTROL_DONE__INIT;
        enum outcome outcome = OUTCOME_ENDED;
        struct talk talk;
        enum talk_result r = talk_open(&talk, at->path, TALK_TIMEOUT);

        /* A daemon that ends while it is asked is like one that had ended before. */
        if (r == TALK_ABSENT || r == TALK_DENIED || r == TALK_GONE) {
                outcome = OUTCOME_UNHEARD;
        } else if (r) {
                cli_complain("%s: %s", at->path, talk.error);
                outcome = OUTCOME_FAILED;
        } else if ((r = cmd_control_give(&talk, at->path, order, &done))) {
                cli_complain("%s: %s", at->path, talk.error);
                *code = r == TALK_DENIED ? CLI_DENIED : CLI_ERROR;
        } else if (!done.found) {
                outcome = OUTCOME_UNKNOWN_JOB;
        } else {
                *code = cmd_control_finish(&talk, at->path, order, &done);
        }
        at->result = r;
        memcpy(at->error, talk.error, sizeof at->error);
        talk_close(&talk);
        return outcome;
}

/* The job may be at any of these daemons, also at one after a daemon that is not for this user or does not
 * answer. */
static int cmd_control_try_all(const struct cli *cli, const struct sockets *sockets,
                               const struct order *order) {
        bool answered = false, failed = false;
        int code = CLI_OK;

        for (size_t i = 0; i < sockets->n; i++) {
                enum outcome outcome = cmd_control_try_daemon(&sockets->at[i], order, &code);

                if (outcome == OUTCOME_ENDED)
                        return code;
                failed = failed || outcome == OUTCOME_FAILED;
                answered = answered || outcome == OUTCOME_UNKNOWN_JOB;
                if ((answered || failed) && sockets->one)
                        break;
        }
        if (failed)
                return CLI_ERROR;
        if (!answered)
                return observe_nobody(cli, sockets,
                                      "no daemon takes orders from you; gradsyncctl doctor says more");
        return observe_no_job(cli, sockets, order->job);
}

static int cmd_control_carry_out(const struct cli *cli, const struct order *order) {
        struct sockets sockets;

        if ((order->job ? sockets_find_all(cli, &sockets) : sockets_find_one(cli, &sockets)) < 0)
                return cli_out_of_memory();
        int code = cmd_control_try_all(cli, &sockets, order);
        sockets_deinit(&sockets);
        return code;
}

int cmd_control(struct cli *cli, int argc, char **argv) {
        const struct order_kind *kind = orders;

        while (strcmp(kind->name, cli->command->name) != 0)
                kind++;
        struct order order = { .verb = kind->verb, .done = kind->done };
        int r = cmd_control_parse(cli, &order, argc, argv);
        return r ? r - 1 : cmd_control_carry_out(cli, &order);
}
