// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl list: one line for each job, also for those that have ended, client, or connection to another
 * daemon. */
#include <string.h>

#include "client/cli/base/suggest.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/view/document.h"
#include "client/cli/view/text.h"

static const struct list_kind {
        const char *name;
        void (*text)(const struct observation *observation, bool color, FILE *to);
        json_t *(*json)(const struct observation *observation);
} lists[] = {
        { "jobs", text_jobs, document_jobs },
        { "clients", text_clients, document_clients },
        { "links", text_links, document_links },
};

static const struct list_kind *cmd_list_find(const char *name) {
        for (size_t i = 0; name && i < array_size(lists); i++)
                if (strcmp(lists[i].name, name) == 0)
                        return &lists[i];
        return NULL;
}

/* Complains about a missing or an unknown word. */
static int cmd_list_refuse(const struct cli *cli, const char *word) {
        const char *words[array_size(lists) + 1] = { NULL };
        char question[SUGGEST_SIZE] = "";

        for (size_t i = 0; i < array_size(lists); i++)
                words[i] = lists[i].name;
        return cli_usage_error(cli, "list wants to know what: jobs, clients or links%s",
                               word ? suggest_word(question, word, words) : "");
}

static enum talk_result cmd_list_add_ended(struct talk *talk, const char *path, const char *job, void *data,
                                           bool *ret_found) {
        *ret_found = true;
        return ended_fetch(talk, job, data);
}

static int cmd_list_ended(const struct cli *cli, bool json) {
        struct ended_jobs jobs = { 0 };
        const struct inquiry inquiry = { .ask = cmd_list_add_ended, .data = &jobs };
        int code = observe_each(cli, &inquiry), printed = CLI_OK;
        bool some = code == CLI_OK || jobs.n > 0;

        if (some && json)
                printed = document_print(document_ended(&jobs), false);
        else if (some)
                text_ended(&jobs, cli->color, stdout);
        ended_deinit(&jobs);
        return code ? code : printed;
}

int cmd_list(struct cli *cli, int argc, char **argv) {
        struct observation observation;
        bool json = false, ended = false;
        const struct cli_option own[] = { { "json", 'j', CLI_FLAG, .value = &json },
                                          { "ended", '\0', CLI_FLAG, .value = &ended } };
        int r = cli_options(cli, argc, argv, false, own, array_size(own)), printed = CLI_OK;

        if (r)
                return r - 1;
        const struct list_kind *list = cmd_list_find(argv[optind]);
        if (!list)
                return cmd_list_refuse(cli, argv[optind]);
        if (argc - optind > 1)
                return cli_usage_error(cli, "list %s takes no further argument%s", list->name,
                                       list->json == document_jobs
                                               ? "; one job is shown by: gradsyncctl status JOB"
                                               : "");
        if (ended && list->json != document_jobs)
                return cli_usage_error(cli,
                                       "only jobs are remembered once they have ended: list jobs --ended");
        if (ended)
                return cmd_list_ended(cli, json);
        int code = observe(cli, NULL, &observation);
        if (observation.n > 0 && json)
                printed = document_print(list->json(&observation), false);
        else if (observation.n > 0)
                list->text(&observation, cli->color, stdout);
        observe_deinit(&observation);
        return code ? code : printed;
}
