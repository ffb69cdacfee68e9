// SPDX-License-Identifier: Apache-2.0
/*
 * gradsyncctl: finds the command, runs it, and makes sure that its output has arrived. What a command does is
 * in cmd_NAME.c; the table of commands with their help is in commands.c.
 */
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"

static void version(void) {
        printf("gradsyncctl %s\n", GRADSYNC_RELEASE);
}

static void setup(struct cli *cli) {
        /* Character types only: numbers keep their point in every locale. */
        setlocale(LC_CTYPE, "");
        bool wanted = !getenv("NO_COLOR") || !*getenv("NO_COLOR");
        const char *term = getenv("TERM");
        if (!term || strcmp(term, "dumb") == 0)
                wanted = false;
        cli->color = wanted && isatty(STDOUT_FILENO);
        cli->color_err = wanted && isatty(STDERR_FILENO);
}

/* A full disk or a closed pipe behind stdout must not look like success. */
static int finish(int code) {
        if (fflush(stdout) == 0 && !ferror(stdout))
                return code;
        if (errno != EPIPE)
                cli_complain("cannot write the output: %s", strerror(errno));
        return code ? code : CLI_ERROR;
}

/* The options that may stand before the command; returns the index of the first word behind them. */
static int global_options(struct cli *cli, int argc, char **argv) {
        int i = 1;

        while (i < argc) {
                const char *arg = argv[i];
                const char **value = NULL;

                if (strcmp(arg, "--socket") == 0 || strcmp(arg, "-s") == 0 ||
                    strncmp(arg, "--socket=", 9) == 0)
                        value = &cli->socket;
                else if (strcmp(arg, "--device") == 0 || strcmp(arg, "-d") == 0 ||
                         strncmp(arg, "--device=", 9) == 0)
                        value = &cli->device;
                else
                        break;
                if (arg[1] == '-' && arg[8] == '=') {
                        *value = arg + 9;
                        i++;
                } else if (i + 1 < argc) {
                        *value = argv[i + 1];
                        i += 2;
                } else {
                        break; /* the command's own parser says what is missing */
                }
        }
        return i;
}

int main(int argc, char **argv) {
        struct cli cli = { 0 };
        const struct command *command;

        setup(&cli);
        int first = global_options(&cli, argc, argv);
        const char *word = first < argc ? argv[first] : NULL;

        if (word && (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)) {
                version();
                return finish(CLI_OK);
        }
        if (word && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
                return finish(cmd_help(&cli, 1, argv));
        if (!word || word[0] == '-') {
                command = cli_command_find("status"); /* the bare command, perhaps with options of status */
                first--;
        } else {
                command = cli_command_find(word);
        }
        if (!command)
                return cli_usage_error(&cli, "there is no command \"%s\"", word);
        cli.command = command->name;
        return finish(command->run(&cli, argc - first, argv + first));
}
