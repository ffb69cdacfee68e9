// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl key new: a line for the key files of daemons that are to know each other. */
#include <stdio.h>
#include <string.h>

#include "client/cli/base/random.h"
#include "client/cli/cmd/cmd.h"

#define SECRET 32u /* bytes */
#define NAME_MOST 64u

static bool cmd_key_name_is_good(const char *name) {
        size_t n = strlen(name);

        return n >= 1 && n <= NAME_MOST &&
               strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static bool cmd_key_uids_are_good(const char *uids) {
        return strcmp(uids, "*") == 0 || (uids[0] != '\0' && strspn(uids, "0123456789,-") == strlen(uids));
}

int cmd_key(struct cli *cli, int argc, char **argv) {
        const char *name = "main", *uids = NULL;
        const struct cli_option own[] = { { "name", 0, CLI_TEXT, .value = &name },
                                          { "uids", 0, CLI_TEXT, .value = &uids } };
        char secret[2 * SECRET + 1];
        int r = cli_options(cli, argc, argv, false, own, array_size(own));

        if (r)
                return r - 1;
        if (argc - optind != 1 || strcmp(argv[optind], "new") != 0)
                return cli_usage_error(cli, "key wants to know what: new");
        if (!cmd_key_name_is_good(name))
                return cli_usage_error(cli, "the name of a key is 1 to %u letters, digits, '.', '_' or '-'",
                                       NAME_MOST);
        if (uids && !cmd_key_uids_are_good(uids))
                return cli_usage_error(cli, "--uids wants numbers and ranges, as in 1000,2000-2999, or *");
        if (random_hex(secret, SECRET) < 0)
                return CLI_ERROR;
        printf("%s %s", name, secret);
        explicit_bzero(secret, sizeof(secret));
        if (uids)
                printf(" uids=%s", uids);
        putchar('\n');
        return CLI_OK;
}
