// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl top: who works and who waits, as of the last interval, again and again. */
#include <string.h>
#include <time.h>

#include "text.h"
#include "watch.h"

struct top {
        struct cli *cli;
        const char *job;
        bool batch;
        unsigned long interval_ms, count;
        struct observation before; /* the last look, with which this one is compared */
        int64_t looked_ms;
        bool again;
};

/* 0 to go on, else 1 + the exit code. */
static int parse(struct top *top, int argc, char **argv) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "batch", no_argument, NULL, 'b' },
                { "count", required_argument, NULL, 'n' },
                { "interval", required_argument, NULL, 'i' },
                { 0 },
        };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "bn:i:", longs, NULL)) >= 0) {
                if (option == 'b')
                        top->batch = true;
                else if (option == 'n' && !cli_parse_number(optarg, 1, 1000000000, &top->count))
                        return cli_refuse_option(top->cli, "--count needs a number from 1, not \"%s\"",
                                                 optarg);
                else if (option == 'i' && !cli_parse_seconds(optarg, &top->interval_ms))
                        return cli_refuse_option(top->cli, "--interval needs a number of seconds, not \"%s\"",
                                                 optarg);
                else if (option != 'n' && option != 'i' && (r = cli_common_option(top->cli, option, argv)))
                        return r;
        }
        if (argc - optind > 1)
                return cli_refuse_option(top->cli, "top takes one job at most");
        top->job = argv[optind];
        if (top->job && !*top->job)
                return cli_refuse_option(top->cli, "the name of a job is never empty");
        if (!top->batch && !isatty(STDOUT_FILENO))
                return cli_refuse_option(top->cli,
                                         "the output is no terminal; top --batch writes plain text");
        return 0;
}

static int64_t now_ms(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int show(struct top *top, const struct observation *observation, uint64_t elapsed_ms) {
        _cleanup_(freep) char *page = NULL;
        size_t size;
        FILE *to = open_memstream(&page, &size);

        if (!to) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        if (top->batch && top->again)
                fputc('\n', to);
        text_top(observation, top->again ? &top->before : NULL, elapsed_ms, top->cli->color && !top->batch,
                 to);
        fclose(to);
        return watch_page(page, !top->batch, true);
}

static int look(void *data) {
        struct top *top = data;
        struct observation observation;
        int code = observe(top->cli, top->job, &observation), printed = CLI_OK;
        int64_t now = now_ms();

        if (observation.n > 0)
                printed = show(top, &observation, (uint64_t)(now - top->looked_ms));
        observation_deinit(&top->before);
        top->before = observation;
        top->looked_ms = now;
        top->again = true;
        return code ? code : printed;
}

int cmd_top(struct cli *cli, int argc, char **argv) {
        struct top top = { .cli = cli, .interval_ms = 1000 };
        int r = parse(&top, argc, argv);

        if (r)
                return r - 1;
        r = watch(top.interval_ms, top.count, look, &top);
        observation_deinit(&top.before);
        return r;
}
