// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl top: which members work and which wait, as of the last interval, again and again. */
#include "client/cli/view/top.h"

#include <ctype.h>
#include <string.h>

#include "client/cli/base/moment.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/view/watch.h"

/* Keys that choose an order. */
static const struct top_key {
        char key;
        enum figures_order order;
        const char *name, *help;
} top_keys[] = {
        { 'r', FIGURES_BY_RANK, "rank", "members by rank, jobs as the daemon lists them" },
        { 'j', FIGURES_BY_JOB, "job", "jobs by name, members by rank" },
        { 'e', FIGURES_BY_EXPOSED, "exposed", "who is blocked on gradsync most" },
        { 'l', FIGURES_BY_LATE, "late", "who comes latest" },
        { 'w', FIGURES_BY_WAIT, "wait", "who is waited for longest" },
        { 's', FIGURES_BY_STEP, "step", "who has done the fewest steps" },
};

struct top {
        const struct cli *cli;
        bool batch, interactive; /* interactive: keys count */
        unsigned long interval_ms, count;
        struct lookout lookout;
        struct observation now, before; /* the last look, and the one that it is compared with */
        uint64_t elapsed_ms;            /* between the two */
        int64_t looked_ms;
        unsigned pages;
        const struct top_key *by;
        bool reverse, help;
};

static int cmd_top_parse(struct cli *cli, struct top *top, int argc, char **argv) {
        const struct cli_option own[] = {
                { "batch", 'b', CLI_FLAG, .value = &top->batch },
                { "count", 'n', CLI_NUMBER, &top->count, "--count needs a number from 1", 1, 1000000000 },
                { "interval", 'i', CLI_SECONDS, .value = &top->interval_ms },
        };
        int r = cli_options(cli, argc, argv, false, own, array_size(own));

        if (!r)
                r = cli_one_job(cli, argc, argv, &top->lookout.job);
        if (!r && !top->batch && !isatty(STDOUT_FILENO))
                return cli_refuse_option(cli, "the output is no terminal; top --batch writes plain text");
        return r;
}

static void cmd_top_help(FILE *to) {
        fputs("Keys of gradsyncctl top\n\n", to);
        for (size_t i = 0; i < array_size(top_keys); i++)
                fprintf(to, "  %c     sort by %s: %s\n", top_keys[i].key, top_keys[i].name, top_keys[i].help);
        fputs("  R     the other way round\n"
              "  h, ?  this page, and back\n"
              "  q     end\n",
              to);
}

static void cmd_top_page(const struct top *top, FILE *to, const struct figures_list *list) {
        char remark[96] = "";

        if (top->interactive)
                snprintf(remark, sizeof remark, "; by %s%s (h: help, q: quit)", top->by->name,
                         top->reverse ? ", reversed" : "");
        if (top->batch && top->pages > 0)
                fputc('\n', to);
        top_page(&top->now, list, remark, top->cli->color && !top->batch, to);
}

static int cmd_top_show(void *data) {
        struct top *top = data;
        struct watch_page page;
        struct figures_list list = { 0 };

        if (top->lookout.waiting && !top->help)
                return watch_show_missing(&top->lookout, !top->batch);
        if (watch_page_open(&page) < 0)
                return cli_out_of_memory();
        if (figures_collect(&top->now, &top->before, top->elapsed_ms, &list) < 0)
                fputs("out of memory\n", page.to);
        figures_sort(&list, top->by->order, top->reverse);
        if (top->help)
                cmd_top_help(page.to);
        else
                cmd_top_page(top, page.to, &list);
        figures_deinit(&list);
        int code = watch_page_show(&page, !top->batch, true);
        return code == CLI_OK && top->lookout.waiting ? WATCH_NOTHING : code;
}

static bool cmd_top_key(void *data, char key) {
        struct top *top = data;

        if (key == 'q' || key == 'Q')
                return false;
        if (key == 'h' || key == 'H' || key == '?')
                top->help = !top->help;
        else if (key == 'R')
                top->reverse = !top->reverse;
        else
                top->help = false;
        for (size_t i = 0; i < array_size(top_keys); i++)
                if (key == top_keys[i].key)
                        top->by = &top_keys[i];
        return true;
}

static int cmd_top_look(void *data) {
        struct top *top = data;
        struct observation seen;
        int code = lookout_look(&top->lookout, top->cli, &seen), shown = CLI_OK;
        int64_t now = moment_ms();

        if (seen.n > 0) {
                observe_deinit(&top->before);
                top->before = top->now;
                top->now = seen;
                top->elapsed_ms = (uint64_t)(now - top->looked_ms);
                top->looked_ms = now;
        }
        if (seen.n > 0 || top->lookout.waiting)
                shown = cmd_top_show(top);
        top->pages += seen.n > 0;
        if (seen.n == 0)
                observe_deinit(&seen); /* of a job that is not there it may hold memory */
        return code ? code : shown;
}

int cmd_top(struct cli *cli, int argc, char **argv) {
        struct top top = { .cli = cli, .interval_ms = 1000, .by = top_keys };
        int r = cmd_top_parse(cli, &top, argc, argv);

        if (r)
                return r - 1;
        top.interactive = !top.batch && isatty(STDIN_FILENO);
        r = watch_repeat(&(struct watch){ .interval_ms = top.interval_ms,
                                          .count = top.count,
                                          .look = cmd_top_look,
                                          .key = top.interactive ? cmd_top_key : NULL,
                                          .show = top.batch ? NULL : cmd_top_show,
                                          .data = &top });
        observe_deinit(&top.now);
        observe_deinit(&top.before);
        lookout_deinit(&top.lookout);
        return r;
}
