// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl run: options, the daemon to use, and the order in which things start and end. See run/run.h. */
#include <errno.h>
#include <string.h>

#include "client/cli/ask/sockets.h"
#include "client/cli/ask/talk.h"
#include "client/cli/base/random.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/run/output.h"
#include "proto/names.h"

/* The made-up name and token of a job, as text. */
#define RUN_PREFIX "run-"
#define RUN_NAME_BYTES 8
#define RUN_TOKEN_BYTES 16
#define RUN_NAME (sizeof RUN_PREFIX + 2 * RUN_NAME_BYTES)
#define RUN_TOKEN (2 * RUN_TOKEN_BYTES + 1)

static int cmd_run_parse(struct cli *cli, struct run_options *options, int argc, char **argv) {
        const struct cli_option own[] = {
                { "members", 'n', CLI_NUMBER, &options->members, "-n needs a number from 1 to 256", 1,
                  LIMIT_LOCAL },
                { "job", '\0', CLI_TEXT, .value = &options->job },
                { "private", '\0', CLI_FLAG, .value = &options->always_private },
                { "daemon-arg", '\0', CLI_TEXTS, .value = &options->daemon_args },
                { "keep-going", '\0', CLI_FLAG, .value = &options->keep_going },
                { "log-dir", '\0', CLI_TEXT, .value = &options->log_dir },
                { "grace", '\0', CLI_SECONDS, .value = &options->grace_ms },
                { "restart", '\0', CLI_NUMBER, &options->restarts, "--restart needs a number of times", 0,
                  1000000 },
        };
        int r = cli_options(cli, argc, argv, true, own, array_size(own));

        if (r)
                return r;
        if (options->job && !name_valid_job(options->job))
                return cli_refuse_option(
                        cli,
                        "\"%s\" cannot be the name of a job: it takes 1 to 255 bytes of UTF-8, "
                        "no \"/\" and no control characters",
                        options->job);
        if (!options->members)
                return cli_refuse_option(cli, "run needs -n, the number of processes");
        if (optind == argc)
                return cli_refuse_option(cli, "run needs a command to start");
        options->command = argv + optind;
        return 0;
}

/* The socket of a daemon that answers, or NULL and why the last one does not. */
static char *cmd_run_reachable(struct sockets *sockets, char *error, size_t error_size) {
        char *found = NULL;

        for (size_t i = 0; i < sockets->n && !found; i++) {
                struct talk talk;
                sockets->at[i].result = talk_open(&talk, sockets->at[i].path, TALK_TIMEOUT);
                if (sockets->at[i].result == TALK_OK)
                        found = strdup(sockets->at[i].path);
                else
                        snprintf(error, error_size, "%s: %s", sockets->at[i].path, talk.error);
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
                bool denied = sockets.n > 0 && sockets.at[0].result == TALK_DENIED;
                sockets_deinit(&sockets);
                run->socket = *ret_found;
                if (*ret_found && run->options->daemon_args.n)
                        cli_complain("--daemon-arg has no effect: the daemon at %s serves the job",
                                     *ret_found);
                if (*ret_found)
                        return CLI_OK;
                if (source == SOCKETS_FROM_OPTION) {
                        cli_complain("%s", error);
                        return denied ? CLI_DENIED : CLI_NO_DAEMON;
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
        bool failed = false;
        int code = output_open(run);

        if (!code)
                code = cmd_run_choose_daemon(run, cli, &found);
        if (!code)
                code = run_members_start(run);
        if (!code) {
                relay_run(run);
                code = run->result;
                failed = code && !run->options->bare && !run->interrupted && !run->unheard;
        }
        missed_deinit(&run->missed);
        run_members_end(run);
        notices_close(&run->notices);
        run_daemon_stop(&run->daemon, failed);
        output_close(run);
        return code;
}

/* Makes up a name and a token for a job to which the user gave no name. No other `run` may get into the job,
 * whatever PID namespace, host or boot it belongs to. */
static int cmd_run_name_job(struct run *run, char name[RUN_NAME], char token[RUN_TOKEN]) {
        strcpy(name, RUN_PREFIX);
        if (random_hex(name + strlen(RUN_PREFIX), RUN_NAME_BYTES) < 0 ||
            random_hex(token, RUN_TOKEN_BYTES) < 0)
                return -1;
        run->job = name;
        run->token = token;
        return 0;
}

int cmd_run_with(const struct cli *cli, const struct run_options *options) {
        _cleanup_(freep) struct run_member *members = calloc(options->members, sizeof *members);
        struct run run = { .options = options,
                           .daemon = RUN_DAEMON_INIT,
                           .missed = MISSED_INIT,
                           .notices = NOTICES_INIT,
                           .job = options->job,
                           .member = members,
                           .color = { cli->color, cli->color_err } };
        char name[RUN_NAME], token[RUN_TOKEN];

        if (!options->job && cmd_run_name_job(&run, name, token) < 0)
                return CLI_ERROR;
        if (!members || relay_prepare(&run) < 0) {
                cli_complain("cannot prepare: %s", strerror(errno));
                return CLI_ERROR;
        }
        int code = cmd_run_job(&run, cli);
        close(run.signal_fd);
        close(run.epoll_fd);
        return code;
}

int cmd_run(struct cli *cli, int argc, char **argv) {
        _cleanup_(freep) const char **daemon_args = calloc((size_t)argc + 1, sizeof *daemon_args);
        struct run_options options = { .grace_ms = 10000, .daemon_args.text = daemon_args };

        if (!daemon_args)
                return CLI_ERROR;
        int r = cmd_run_parse(cli, &options, argc, argv);
        return r ? r - 1 : cmd_run_with(cli, &options);
}
