// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl status: looks once, or again and again, and shows text or JSON. */
#include "client/cli/cmd/cmd.h"
#include "client/cli/view/document.h"
#include "client/cli/view/text.h"
#include "client/cli/view/watch.h"

struct status_options {
        const struct cli *cli;
        bool json;
        unsigned long watch_ms; /* 0: once */
        const char *job;
        struct lookout lookout; /* of a watch */
};

static int cmd_status_show_text(const struct status_options *options, const struct observation *observation,
                                bool redraw) {
        struct watch_page page;

        if (watch_page_open(&page) < 0)
                return cli_out_of_memory();
        text_status(observation, options->job != NULL, options->cli->color, page.to);
        if (options->watch_ms && !redraw)
                fputc('\n', page.to);
        return watch_page_show(&page, redraw, false);
}

static int cmd_status_show(void *data) {
        struct status_options *options = data;
        bool redraw = options->watch_ms && isatty(STDOUT_FILENO);
        struct observation observation;
        int code = options->watch_ms ? lookout_look(&options->lookout, options->cli, &observation)
                                     : observe(options->cli, options->job, &observation);
        int printed = CLI_OK;

        if (options->lookout.waiting)
                printed = watch_show_missing(&options->lookout, redraw);
        else if (observation.n > 0 && options->json)
                printed = document_print(document_status(&observation), options->watch_ms != 0);
        else if (observation.n > 0)
                printed = cmd_status_show_text(options, &observation, redraw);
        observe_deinit(&observation);
        return code ? code : printed;
}

int cmd_status(struct cli *cli, int argc, char **argv) {
        struct status_options options = { .cli = cli };
        const struct cli_option own[] = { { "json", 'j', CLI_FLAG, .value = &options.json },
                                          { "watch", 'w', CLI_PERIOD, .value = &options.watch_ms } };
        int r = cli_options(cli, argc, argv, false, own, array_size(own));
        if (!r)
                r = cli_one_job(cli, argc, argv, &options.job);
        if (r)
                return r - 1;
        if (!options.watch_ms)
                return cmd_status_show(&options);
        options.lookout.job = options.job;
        r = watch_repeat(&(struct watch){
                .interval_ms = options.watch_ms, .look = cmd_status_show, .data = &options });
        lookout_deinit(&options.lookout);
        return r;
}
