// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl list: one line a job or a client. */
#include <string.h>

#include "json.h"
#include "text.h"

static const struct list {
        const char *name;
        void (*text)(const struct observation *observation, bool color, FILE *to);
        json_t *(*json)(const struct observation *observation);
} lists[] = {
        { "jobs", text_jobs, json_jobs },
        { "clients", text_clients, json_clients },
};

static const struct list *list_find(const char *name) {
        for (size_t i = 0; name && i < array_size(lists); i++)
                if (strcmp(lists[i].name, name) == 0)
                        return &lists[i];
        return NULL;
}

int cmd_list(struct cli *cli, int argc, char **argv) {
        static const struct option longs[] = { CLI_COMMON_LONG, { "json", no_argument, NULL, 'j' }, { 0 } };
        struct observation observation;
        int option, r, printed = CLI_OK;
        bool json = false;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT "j", longs, NULL)) >= 0) {
                if (option == 'j')
                        json = true;
                else if ((r = cli_common_option(cli, option, argv)))
                        return r - 1;
        }
        const struct list *list = list_find(argv[optind]);
        if (!list || argc - optind != 1)
                return cli_usage_error(cli, "list wants to know what: jobs or clients");
        int code = observe(cli, NULL, &observation);
        if (observation.n > 0 && json)
                printed = json_print(list->json(&observation), false);
        else if (observation.n > 0)
                list->text(&observation, cli->color, stdout);
        observation_deinit(&observation);
        return code ? code : printed;
}
