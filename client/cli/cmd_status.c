// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl status: looks once, or again and again, and shows text or JSON. */
#include <string.h>

#include "json.h"
#include "text.h"
#include "watch.h"

struct options {
        const struct cli *cli;
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
        if (options->watch_ms && !redraw)
                fputc('\n', to);
        fclose(to);
        return watch_page(page, redraw, false);
}

static int show(void *data) {
        const struct options *options = data;
        const struct cli *cli = options->cli;
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

int cmd_status(struct cli *cli, int argc, char **argv) {
        struct options options = { .cli = cli };
        int r = parse(cli, &options, argc, argv);

        if (r)
                return r - 1;
        return options.watch_ms ? watch(options.watch_ms, 0, show, &options) : show(&options);
}
