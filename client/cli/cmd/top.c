// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl top: which members work and which wait, as of the last interval, again and again. */
#include "client/cli/view/top.h"
#include "client/cli/base/moment.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/view/watch.h"

struct top {
        const struct cli *cli;
        const char *job;
        bool batch;
        unsigned long interval_ms, count;
        struct observation before; /* the last look, with which this one is compared */
        int64_t looked_ms;
        bool again;
};

static int cmd_top_parse(struct cli *cli, struct top *top, int argc, char **argv) {
        const struct cli_option own[] = {
                { "batch", 'b', CLI_FLAG, .value = &top->batch },
                { "count", 'n', CLI_NUMBER, &top->count, "--count needs a number from 1", 1, 1000000000 },
                { "interval", 'i', CLI_SECONDS, .value = &top->interval_ms },
        };
        int r = cli_options(cli, argc, argv, false, own, array_size(own));

        if (!r)
                r = cli_one_job(cli, argc, argv, &top->job);
        if (!r && !top->batch && !isatty(STDOUT_FILENO))
                return cli_refuse_option(cli, "the output is no terminal; top --batch writes plain text");
        return r;
}

static int cmd_top_show(const struct top *top, const struct observation *observation, int64_t elapsed_ms) {
        struct watch_page page;

        if (watch_page_open(&page) < 0)
                return cli_out_of_memory();
        if (top->batch && top->again)
                fputc('\n', page.to);
        top_page(observation, top->again ? &top->before : NULL, (uint64_t)elapsed_ms,
                 top->cli->color && !top->batch, page.to);
        return watch_page_show(&page, !top->batch, true);
}

static int cmd_top_look(void *data) {
        struct top *top = data;
        struct observation observation;
        int code = observe(top->cli, top->job, &observation), printed = CLI_OK;
        int64_t now = moment_ms();

        if (observation.n > 0)
                printed = cmd_top_show(top, &observation, now - top->looked_ms);
        observe_deinit(&top->before);
        top->before = observation;
        top->looked_ms = now;
        top->again = true;
        return code ? code : printed;
}

int cmd_top(struct cli *cli, int argc, char **argv) {
        struct top top = { .cli = cli, .interval_ms = 1000 };
        int r = cmd_top_parse(cli, &top, argc, argv);

        if (r)
                return r - 1;
        r = watch_repeat(top.interval_ms, top.count, cmd_top_look, &top);
        observe_deinit(&top.before);
        return r;
}
