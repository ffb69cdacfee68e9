// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl run: options, the daemon to use, and the order in which things start and end. See run.h. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

#include "find.h"
#include "link.h"
#include "proto/names.h"
#include "run.h"

enum { OPT_JOB = CLI_OPT_OWN, OPT_PRIVATE, OPT_DAEMON_ARG, OPT_KEEP_GOING, OPT_GRACE, OPT_RESTART };

/* The command's own options; -1: not one of them, else as cli_common_option(). */
static int own_option(struct cli *cli, struct run_options *options, int option) {
        switch (option) {
        case 'n':
                if (!cli_parse_number(optarg, 1, LIMIT_WORLD, &options->members))
                        return cli_refuse_option(cli, "-n needs a number from 1 to %u, not \"%s\"",
                                                 LIMIT_WORLD, optarg);
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
                        return cli_refuse_option(cli, "--restart needs a number of times, not \"%s\"", optarg);
                return 0;
        case OPT_GRACE:
                if (!cli_parse_seconds(optarg, &options->grace_ms))
                        return cli_refuse_option(cli, "--grace needs a number of seconds, not \"%s\"",
                                                 optarg);
                return 0;
        default: return -1;
        }
}

static int parse(struct cli *cli, struct run_options *options, int argc, char **argv) {
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
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, "+:" CLI_COMMON_SHORT "n:", longs, NULL)) >= 0) {
                r = own_option(cli, options, option);
                if (r < 0)
                        r = cli_common_option(cli, option, argv);
                if (r)
                        return r;
        }
        if (!options->members)
                return cli_refuse_option(cli, "run needs -n, the number of processes");
        if (optind == argc)
                return cli_refuse_option(cli, "run needs a command to start");
        options->command = argv + optind;
        return 0;
}

/* The socket of a daemon that answers, or NULL. Where somebody named a place, silence is told. */
static char *reachable(const struct places *places, char *error, size_t error_size) {
        char *found = NULL;

        for (size_t i = 0; i < places->n && !found; i++) {
                struct link link;
                if (link_open(&link, places->path[i], LINK_TIMEOUT) == LINK_OK)
                        found = strdup(places->path[i]);
                else
                        snprintf(error, error_size, "%s: %s", places->path[i], link.error);
                link_close(&link);
        }
        return found;
}

/* Which daemon serves the job: sets run->socket. An exit code. `*ret_found` is to be freed. */
static int choose_daemon(struct run *run, const struct cli *cli, char **ret_found) {
        char error[1600] = "";
        struct places places;

        if (!run->options->always_private) {
                if (find_one(cli, &places) < 0) {
                        cli_complain("out of memory");
                        return CLI_ERROR;
                }
                enum find_source source = places.source;
                *ret_found = reachable(&places, error, sizeof error);
                places_deinit(&places);
                run->socket = *ret_found;
                if (*ret_found && run->options->n_daemon_args)
                        cli_complain("--daemon-arg has no effect: the daemon at %s serves the job",
                                     *ret_found);
                if (*ret_found)
                        return CLI_OK;
                if (source == FIND_SOCKET_OPTION) {
                        cli_complain("%s", error);
                        return CLI_NO_DAEMON;
                }
                if (source == FIND_SOCKET_VARIABLE)
                        cli_complain("GRADSYNC_SOCKET: %s; a private daemon serves the job", error);
        }
        int code = run_daemon_start(&run->daemon, find_device(cli), run->options, run->signal_fd, &run->mask);
        run->socket = run->daemon.socket;
        return code;
}

/* Blocks what the loop reads from the signalfd. Signals that we were told to ignore stay ignored, here and in
 * members. */
int run_take_over_signals(struct run *run) {
        static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCHLD };
        sigset_t set;

        sigemptyset(&set);
        for (size_t i = 0; i < array_size(wanted); i++) {
                struct sigaction now;
                if (sigaction(wanted[i], NULL, &now) == 0 &&
                    (now.sa_handler != SIG_IGN || wanted[i] == SIGCHLD))
                        sigaddset(&set, wanted[i]);
        }
        signal(SIGCHLD, SIG_DFL);
        signal(SIGPIPE, SIG_IGN);
        sigprocmask(SIG_BLOCK, &set, &run->mask);
        run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        /* What members leave behind becomes our child instead of init's, and so can be ended. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        return run->signal_fd < 0 || run->epoll_fd < 0 ? -errno : 0;
}

static int start_members(struct run *run) {
        int code = CLI_OK;

        for (unsigned rank = 0; rank < run->options->members && !code; rank++)
                code = run_member_start(run, rank);
        return code;
}

static int run_job(struct run *run, const struct cli *cli) {
        _cleanup_(freep) char *found = NULL;
        int code = choose_daemon(run, cli, &found);

        if (!code)
                code = start_members(run);
        if (!code) {
                run_watch(run);
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
        int r = parse(cli, &options, argc, argv);
        if (r)
                return r - 1;
        snprintf(name, sizeof name, "run-%d", (int)getpid());
        run.job = options.job ? options.job : name;
        _cleanup_(freep) struct run_member *members = calloc(options.members, sizeof *members);
        run.member = members;
        if (!members || run_take_over_signals(&run) < 0) {
                cli_complain("cannot prepare: %s", strerror(errno));
                return CLI_ERROR;
        }
        r = run_job(&run, cli);
        close(run.signal_fd);
        close(run.epoll_fd);
        return r;
}
