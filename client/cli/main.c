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
#include "proto/streams.h"

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

/* The options in front of the command, or of the bare status. They are read to find where it stands; what they mean is up to the
 * command, which reads them again. 0 to go on, else 1 + the exit code. */
static int leading_options(struct cli *cli, int argc, char **argv, bool *ret_help) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "json", no_argument, NULL, 'j' },
                { "watch", optional_argument, NULL, 'w' },
                { "version", no_argument, NULL, 'V' },
                { 0 },
        };
        int option, r;

        *ret_help = false;
        opterr = 0;
        while ((option = getopt_long(argc, argv, "+:" CLI_COMMON_SHORT "jw::V", longs, NULL)) >= 0) {
                if (option == 'V') {
                        version();
                        return 1 + CLI_OK;
                } else if (option == '?' && optopt && !strchr(argv[optind - 1], '=')) {
                        return cli_refuse_option(cli, "option -%c cannot stand in front of the command; is it one of a command? "
                                                 "Those stand behind it", optopt);
                } else if (option == '?') {
                        return cli_refuse_option(cli, "option %s cannot stand in front of the command; is it one of a command? "
                                                 "Those stand behind it", argv[optind - 1]);
                } else if (option == CLI_OPT_HELP) {
                        *ret_help = true;
                } else if (option != 'j' && option != 'w' && (r = cli_common_option(cli, option, argv))) {
                        return r;
                }
        }
        return 0;
}

int main(int argc, char **argv) {
        struct cli cli = { 0 };
        bool help;

        streams_fill();
        setup(&cli);
        int r = leading_options(&cli, argc, argv, &help), at = optind;
        if (r)
                return finish(r - 1);
        char *word = at < argc ? argv[at] : NULL;
        if (!word && help)
                return finish(cmd_help(&cli, 1, argv));
        const struct command *command = cli_command_find(word ? word : "status");
        if (!command)
                return cli_usage_error(&cli, "there is no command \"%s\"", word);
        cli.command = command->name;
        if (!word)
                return finish(command->run(&cli, argc, argv));
        /* The options in front of it follow it. */
        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
        argv[1] = word;
        return finish(command->run(&cli, argc - 1, argv + 1));
}
