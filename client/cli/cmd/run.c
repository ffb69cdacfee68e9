// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl run: options, the daemon to use, and the order in which things start and end. See run/run.h. */
#include <errno.h>
#include <string.h>

#include "client/cli/ask/sockets.h"
#include "client/cli/ask/talk.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/run/run.h"
#include "proto/names.h"

enum { OPT_JOB = CLI_OPT_OWN, OPT_PRIVATE, OPT_DAEMON_ARG, OPT_KEEP_GOING, OPT_GRACE, OPT_RESTART };

static int cmd_run_option(struct cli *cli, void *data, int option) {
        struct run_options *options = data;

        switch (option) {
        case 'n':
                if (!cli_parse_number(optarg, 1, LIMIT_LOCAL, &options->members))
                        return cli_refuse_option(cli, "-n needs a number from 1 to %u, not \"%s\"",
                                                 LIMIT_LOCAL, optarg);
                return 0;
        case OPT_JOB:
                if (!name_valid_job(optarg))
                        return cli_refuse_option(
                                cli,
                                "\"%s\" cannot be the name of a job: it takes 1 to 255 bytes of UTF-8, "
                                "no \"/\" and no control characters",
                                optarg);
                options->job = optarg;
                return 0;
        case OPT_PRIVATE: options->always_private = true; return 0;
        case OPT_DAEMON_ARG: options->daemon_args[options->n_daemon_args++] = optarg; return 0;
        case OPT_KEEP_GOING: options->keep_going = true; return 0;
        case OPT_RESTART:
                if (!cli_parse_number(optarg, 0, 1000000, &options->restarts))
                        return cli_refuse_option(cli, "--restart needs a number of times, not \"%s\"",
                                                 optarg);
                return 0;
        case OPT_GRACE:
                if (!cli_parse_seconds(optarg, &options->grace_ms))
                        return cli_refuse_option(cli, "--grace needs a number of seconds, not \"%s\"",
                                                 optarg);
                return 0;
        default: return -1;
        }
}

static int cmd_run_parse(struct cli *cli, struct run_options *options, int argc, char **argv) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "members", required_argument, NULL, 'n' },
                { "job", required_argument, NULL, OPT_JOB },
                { "private", no_argument, NULL, OPT_PRIVATE },
                { "daemon-arg", required_argument, NULL, OPT_DAEMON_ARG },
                { "keep-going", no_argument, NULL, OPT_KEEP_GOING },
                { "grace", required_argument, NULL, OPT_GRACE },
                { "restart", required_argument, NULL, OPT_RESTART },
                { 0 },
        };
        int r = cli_options(cli, argc, argv, "+:" CLI_COMMON_SHORT "n:", longs, cmd_run_option, options);

        if (r)
                return r;
        if (!options->members)
                return cli_refuse_option(cli, "run needs -n, the number of processes");
        if (optind == argc)
                return cli_refuse_option(cli, "run needs a command to start");
        options->command = argv + optind;
        return 0;
}

/* The socket of a daemon that answers, or NULL and why the last one does not. */
static char *cmd_run_reachable(const struct sockets *sockets, char *error, size_t error_size) {
        char *found = NULL;

        for (size_t i = 0; i < sockets->n && !found; i++) {
                struct talk talk;
                if (talk_open(&talk, sockets->path[i], TALK_TIMEOUT) == TALK_OK)
                        found = strdup(sockets->path[i]);
                else
                        snprintf(error, error_size, "%s: %s", sockets->path[i], talk.error);
                talk_close(&talk);
        }
        return found;
}

/* Which daemon serves the job: sets run->socket. An exit code. `*ret_found` is to be freed. */
static int cmd_run_choose_daemon(struct run *run, const struct cli *cli, char **ret_found) {
        char error[1600] = "";
        struct sockets sockets;

        if (!run->options->always_private) {
                if (sockets_find_one(cli, &sockets) < 0)
                        return cli_out_of_memory();
                enum sockets_source source = sockets.source;
                *ret_found = cmd_run_reachable(&sockets, error, sizeof error);
                sockets_deinit(&sockets);
                run->socket = *ret_found;
                if (*ret_found && run->options->n_daemon_args)
                        cli_complain("--daemon-arg has no effect: the daemon at %s serves the job",
                                     *ret_found);
                if (*ret_found)
                        return CLI_OK;
                if (source == SOCKETS_FROM_OPTION) {
                        cli_complain("%s", error);
                        return CLI_NO_DAEMON;
                }
                if (source == SOCKETS_FROM_VARIABLE)
                        cli_complain("GRADSYNC_SOCKET: %s; a private daemon serves the job", error);
        }
        int code =
                run_daemon_start(&run->daemon, sockets_device(cli), run->options, run->signal_fd, &run->mask);
        run->socket = run->daemon.socket;
        return code;
}

static int cmd_run_job(struct run *run, const struct cli *cli) {
        _cleanup_(freep) char *found = NULL;
        int code = cmd_run_choose_daemon(run, cli, &found);

        if (!code)
                code = run_members_start(run);
        if (!code) {
                relay_run(run);
                code = run->result;
        }
        run_members_end(run);
        run_daemon_stop(&run->daemon);
        return code;
}

int cmd_run(struct cli *cli, int argc, char **argv) {
        struct run_options options = { .grace_ms = 10000 };
        struct run run = { .options = &options,
                           .daemon = RUN_DAEMON_INIT,
                           .color = { cli->color, cli->color_err } };
        char name[32];

        _cleanup_(freep) const char **daemon_args = calloc((size_t)argc + 1, sizeof *daemon_args);
        options.daemon_args = daemon_args;
        if (!daemon_args)
                return CLI_ERROR;
        int r = cmd_run_parse(cli, &options, argc, argv);
        if (r)
                return r - 1;
        snprintf(name, sizeof name, "run-%d", (int)getpid());
        run.job = options.job ? options.job : name;
        _cleanup_(freep) struct run_member *members = calloc(options.members, sizeof *members);
        run.member = members;
        if (!members || relay_prepare(&run) < 0) {
                cli_complain("cannot prepare: %s", strerror(errno));
                return CLI_ERROR;
        }
        r = cmd_run_job(&run, cli);
        close(run.signal_fd);
        close(run.epoll_fd);
        return r;
}
