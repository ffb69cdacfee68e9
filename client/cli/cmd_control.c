// SPDX-License-Identifier: Apache-2.0
/*
 * gradsyncctl evict, pause, resume, drain: an operator's orders. Each goes to the first daemon that knows the
 * job it names; drain, and resume without a job, to the one daemon that is meant.
 */
#include <string.h>
#include <time.h>

#include "cli.h"
#include "find.h"
#include "observe.h"
#include "snapshot.h"

#define TOKEN_VARIABLE "GRADSYNC_JOB_TOKEN"
#define NO_JOB "/"              /* asks a daemon for itself only */
#define LOOK_AGAIN 50000000     /* ns between two looks at what is still open */

enum { OPT_TOKEN = CLI_OPT_OWN, OPT_NO_WAIT };

struct order {
        Wire__Verb verb;
        const char *job; /* NULL: the daemon */
        unsigned long rank;
        const char *token;
        bool no_wait;
};

/* 0 to go on, else 1 + the exit code. */
static int parse_options(struct cli *cli, struct order *order, int argc, char **argv) {
        static const struct option with_token[] = {
                CLI_COMMON_LONG, { "token", required_argument, NULL, OPT_TOKEN }, { 0 }
        };
        static const struct option with_no_wait[] = {
                CLI_COMMON_LONG, { "no-wait", no_argument, NULL, OPT_NO_WAIT }, { 0 }
        };
        const struct option *longs = order->verb == WIRE__VERB__DRAIN ? with_no_wait : with_token;
        int option, r;

        optind = 0;
        opterr = 0;
        order->token = getenv(TOKEN_VARIABLE);
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT, longs, NULL)) >= 0) {
                if (option == OPT_TOKEN)
                        order->token = optarg;
                else if (option == OPT_NO_WAIT)
                        order->no_wait = true;
                else if ((r = cli_common_option(cli, option, argv)))
                        return r;
        }
        return 0;
}

static int parse(struct cli *cli, struct order *order, int argc, char **argv) {
        int r = parse_options(cli, order, argc, argv), words = argc - optind;

        if (r)
                return r;
        order->job = words > 0 ? argv[optind] : NULL;
        if (order->verb == WIRE__VERB__EVICT && words != 2)
                return cli_refuse_option(cli, "evict wants a job and a rank");
        if (order->verb == WIRE__VERB__EVICT && !cli_parse_number(argv[optind + 1], 0, LIMIT_WORLD, &order->rank))
                return cli_refuse_option(cli, "a rank is a number, not \"%s\"", argv[optind + 1]);
        if (order->verb == WIRE__VERB__PAUSE && words != 1)
                return cli_refuse_option(cli, "pause wants one job");
        if (order->verb == WIRE__VERB__RESUME && words > 1)
                return cli_refuse_option(cli, "resume takes one job at most");
        if (order->verb == WIRE__VERB__DRAIN && words > 0)
                return cli_refuse_option(cli, "drain takes no job; pause JOB holds one back");
        if (order->job && (!*order->job || strlen(order->job) > LIMIT_TEXT))
                return cli_refuse_option(cli, "\"%s\" is no name of a job", order->job);
        return 0;
}

static enum link_result give(struct link *link, const struct order *order, Wire__ControlDone *ret) {
        Wire__Control control = WIRE__CONTROL__INIT;
        const ProtobufCMessage *message;
        const uint8_t *payload;
        size_t length;
        uint16_t type;

        if (link->minor < FRAME_MINOR_1) {
                snprintf(link->error, sizeof link->error, "gradsyncd %s takes no orders yet; it is too old",
                         link->version);
                return LINK_REFUSED;
        }
        control.has_verb = true;
        control.verb = order->verb;
        control.job = (char *)order->job;
        control.has_rank = order->verb == WIRE__VERB__EVICT;
        control.rank = (uint32_t)order->rank;
        control.token = order->job && order->token && *order->token ? (char *)order->token : NULL;
        enum link_result r = link_send(link, WIRE__MESSAGE_TYPE__CONTROL, &control.base);
        if (!r)
                r = link_receive(link, &type, &message, &payload, &length);
        if (!r && type != WIRE__MESSAGE_TYPE__CONTROL_DONE) {
                snprintf(link->error, sizeof link->error, "the daemon answered an order with %s",
                         codec_type_name(type));
                return LINK_BROKEN;
        }
        if (!r)
                *ret = *(const Wire__ControlDone *)message;
        return r;
}

/* Looks again and again until nothing is open any more. */
static int wait_quiet(struct link *link, const char *path, unsigned open) {
        static const struct timespec pause = { .tv_nsec = LOOK_AGAIN };
        bool draining = true;

        if (open > 0)
                fprintf(stderr, "gradsyncctl: %u step%s or collective%s still open; waiting\n", open,
                        open == 1 ? "" : "s", open == 1 ? " is" : "s are");
        while (open > 0 && draining) {
                struct snapshot snapshot;

                nanosleep(&pause, NULL);
                if (snapshot_fetch(link, path, NO_JOB, &snapshot)) {
                        cli_complain("%s: %s", path, link->error);
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

static int finish(struct link *link, const char *path, const struct order *order, const Wire__ControlDone *done) {
        static const char *const verbs[] = { [WIRE__VERB__EVICT] = "evicted", [WIRE__VERB__PAUSE] = "paused",
                                             [WIRE__VERB__RESUME] = "resumed" };

        if (order->verb == WIRE__VERB__DRAIN && !order->no_wait)
                return wait_quiet(link, path, done->open);
        if (order->verb == WIRE__VERB__DRAIN)
                printf("draining: %u open\n", done->open);
        else
                printf("%s\n", verbs[order->verb]);
        return CLI_OK;
}

enum outcome { OUTCOME_UNHEARD, OUTCOME_FAILED, OUTCOME_UNKNOWN_JOB, OUTCOME_ENDED };

static enum outcome try_daemon(const char *path, const struct order *order, struct attempt *attempt, int *code) {
        Wire__ControlDone done = WIRE__CONTROL_DONE__INIT;
        enum outcome outcome = OUTCOME_ENDED;
        struct link link;
        enum link_result r = link_open(&link, path, LINK_TIMEOUT);

        if (r == LINK_ABSENT || r == LINK_DENIED || r == LINK_GONE) { /* one that ends is as one that had ended */
                outcome = OUTCOME_UNHEARD;
        } else if (r) {
                cli_complain("%s: %s", path, link.error);
                outcome = OUTCOME_FAILED;
        } else if (give(&link, order, &done)) {
                cli_complain("%s: %s", path, link.error);
                *code = CLI_ERROR;
        } else if (!done.found) {
                outcome = OUTCOME_UNKNOWN_JOB;
        } else {
                *code = finish(&link, path, order, &done);
        }
        attempt->result = r;
        memcpy(attempt->error, link.error, sizeof attempt->error);
        link_close(&link);
        return outcome;
}

/* The job may be at any of these daemons, also behind one that is not for this user, or does not answer. */
static int try_all(const struct cli *cli, const struct places *places, const struct order *order,
                   struct attempt *attempts) {
        bool answered = false, failed = false;
        int code = CLI_OK;

        for (size_t i = 0; i < places->n; i++) {
                enum outcome outcome = try_daemon(places->path[i], order, &attempts[i], &code);

                if (outcome == OUTCOME_ENDED)
                        return code;
                failed = failed || outcome == OUTCOME_FAILED;
                answered = answered || outcome == OUTCOME_UNKNOWN_JOB;
                if ((answered || failed) && places->one)
                        break;
        }
        if (failed)
                return CLI_ERROR;
        if (!answered)
                return observe_nobody(cli, places, attempts, "no daemon takes orders from you; gradsyncctl doctor says more");
        cli_complain("there is no job \"%s\"; gradsyncctl list jobs shows which there are", order->job);
        return CLI_UNKNOWN_JOB;
}

static int carry_out(const struct cli *cli, const struct order *order) {
        struct places places;

        if ((order->job ? find_all(cli, &places) : find_one(cli, &places)) < 0) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        _cleanup_(freep) struct attempt *attempts = calloc(places.n, sizeof *attempts);
        int code = CLI_ERROR;
        if (attempts)
                code = try_all(cli, &places, order, attempts);
        else
                cli_complain("out of memory");
        places_deinit(&places);
        return code;
}

static int control(struct cli *cli, Wire__Verb verb, int argc, char **argv) {
        struct order order = { .verb = verb };
        int r = parse(cli, &order, argc, argv);

        return r ? r - 1 : carry_out(cli, &order);
}

int cmd_evict(struct cli *cli, int argc, char **argv) {
        return control(cli, WIRE__VERB__EVICT, argc, argv);
}

int cmd_pause(struct cli *cli, int argc, char **argv) {
        return control(cli, WIRE__VERB__PAUSE, argc, argv);
}

int cmd_resume(struct cli *cli, int argc, char **argv) {
        return control(cli, WIRE__VERB__RESUME, argc, argv);
}

int cmd_drain(struct cli *cli, int argc, char **argv) {
        return control(cli, WIRE__VERB__DRAIN, argc, argv);
}
