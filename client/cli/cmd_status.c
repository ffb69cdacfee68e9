// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl status: looks once, or again and again, and shows text or JSON. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "json.h"
#include "text.h"

struct options {
        bool json;
        unsigned long watch_ms; /* 0: once */
        const char *job;
};

/* 0 to go on, else 1 + the exit code. */
static int parse(struct cli *cli, struct options *options, int argc, char **argv) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "json", no_argument, NULL, 'j' },
                { "watch", optional_argument, NULL, 'w' },
                { 0 },
        };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "jw::", longs, NULL)) >= 0) {
                if (option == 'j')
                        options->json = true;
                else if (option == 'w' && !optarg)
                        options->watch_ms = 1000;
                else if (option == 'w' && !cli_parse_seconds(optarg, &options->watch_ms))
                        return cli_refuse_option(cli, "--watch needs a number of seconds, not \"%s\"",
                                                 optarg);
                else if (option != 'w' && (r = cli_common_option(cli, option, argv)))
                        return r;
        }
        if (argc - optind > 1)
                return cli_refuse_option(cli, "status takes one job at most");
        options->job = argv[optind];
        if (options->job && !*options->job)
                return cli_refuse_option(cli, "the name of a job is never empty");
        return 0;
}

static int show_text(const struct cli *cli, const struct options *options,
                     const struct observation *observation, bool redraw) {
        _cleanup_(freep) char *page = NULL;
        size_t size;
        FILE *to = open_memstream(&page, &size);

        if (!to) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        text_status(observation, options->job != NULL, cli->color, to);
        fclose(to);
        /* One write a page: nothing flickers, nobody reads half a page. */
        printf("%s%s%s", redraw ? "\033[H\033[J" : "", page, redraw || !options->watch_ms ? "" : "\n");
        return fflush(stdout) == 0 ? CLI_OK : CLI_ERROR;
}

static int show(const struct cli *cli, const struct options *options) {
        bool redraw = options->watch_ms && isatty(STDOUT_FILENO);
        struct observation observation;
        int code = observe(cli, options->job, &observation), printed = CLI_OK;

        if (observation.n > 0 && options->json)
                printed = json_print(json_status(&observation), options->watch_ms != 0);
        else if (observation.n > 0)
                printed = show_text(cli, options, &observation, redraw);
        observation_deinit(&observation);
        return code ? code : printed;
}

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
        interrupted = number;
}

/* Signals arrive only while waiting, so a page or a document is never cut. An interrupt is the normal end. */
static int watch(const struct cli *cli, const struct options *options) {
        struct timespec interval = { .tv_sec = (time_t)(options->watch_ms / 1000),
                                     .tv_nsec = (long)(options->watch_ms % 1000) * 1000000 };
        struct sigaction action = { .sa_handler = on_signal };
        sigset_t blocked, before;
        int code;

        sigemptyset(&blocked);
        sigaddset(&blocked, SIGINT);
        sigaddset(&blocked, SIGTERM);
        sigprocmask(SIG_BLOCK, &blocked, &before);
        sigaction(SIGINT, &action, NULL);
        sigaction(SIGTERM, &action, NULL);
        do {
                code = show(cli, options);
                if (!code && ppoll(NULL, 0, &interval, &before) < 0 && errno != EINTR)
                        code = CLI_ERROR;
        } while (!code && !interrupted);
        return code;
}

int cmd_status(struct cli *cli, int argc, char **argv) {
        struct options options = { 0 };
        int r = parse(cli, &options, argc, argv);

        if (r)
                return r - 1;
        return options.watch_ms ? watch(cli, &options) : show(cli, &options);
}
