// SPDX-License-Identifier: Apache-2.0
/*
 * gradsyncctl: finds the command, runs it, and makes sure that its output has arrived. The commands are in
 * cmd/; their table, with the help, is in commands.c.
 */
#include <errno.h>
#include <locale.h>
#include <string.h>

#include "client/cli/base/suggest.h"
#include "client/cli/commands.h"
#include "client/cli/complete.h"
#include "proto/streams.h"

static void main_setup(struct cli *cli) {
        /* Character types only: numbers keep their point in every locale. */
        setlocale(LC_CTYPE, "");
        const char *term = getenv("TERM");
        bool wanted = !environ_get("NO_COLOR") && term && strcmp(term, "dumb") != 0;
        cli->color = wanted && isatty(STDOUT_FILENO);
        cli->color_err = wanted && isatty(STDERR_FILENO);
}

/* A full disk or a closed pipe at stdout must not look like success. */
static int main_finish(struct cli *cli, int code) {
        cli_deinit(cli);
        if (fflush(stdout) == 0 && !ferror(stdout))
                return code;
        if (errno != EPIPE)
                cli_complain("cannot write the output: %s", strerror(errno));
        return code ? code : CLI_ERROR;
}

static int main_misplaced(const struct cli *cli, char **argv, const struct option *longs) {
        char letter[3] = { '-', (char)optopt, '\0' }, text[SUGGEST_SIZE];
        const char *word = argv[optind - 1];
        bool short_option = optopt && !strchr(word, '=');

        if (!optopt && suggest_option(word, longs))
                return cli_refuse_option(cli, "%s", suggest_complaint(text, word, longs));
        return cli_refuse_option(cli,
                                 "option %s cannot stand in front of the command; is it one of a command? "
                                 "Those stand behind it",
                                 short_option ? letter : word);
}

/* The options before the command, or those of the bare status. They are read here to find where the command
 * stands; the command reads them again and decides what they mean. 0 to go on, else 1 + the exit code. */
static int main_leading_options(struct cli *cli, int argc, char **argv, bool *ret_help, bool *ret_watch) {
        static const struct option longs[] = {
                CLI_COMMON_LONG,
                { "json", no_argument, NULL, 'j' },
                { "watch", optional_argument, NULL, 'w' },
                { 0 },
        };
        int option, r;

        *ret_help = *ret_watch = false;
        opterr = 0;
        while ((option = getopt_long(argc, argv, "+:" CLI_COMMON_SHORT "jw::", longs, NULL)) >= 0) {
                if (option == '?')
                        return main_misplaced(cli, argv, longs);
                if (option == 'w' && cli_period_follows(argc, argv))
                        optind++;
                *ret_help = *ret_help || option == CLI_OPT_HELP;
                *ret_watch = *ret_watch || option == 'w';
                if (option != CLI_OPT_HELP && option != 'j' && option != 'w' &&
                    (r = cli_common_option(cli, option, argv, longs)))
                        return r;
        }
        return 0;
}

/* It may be a command with a mistake in it, or the name of a job. */
static int main_unknown_command(const struct cli *cli, const char *word, bool watch) {
        char question[SUGGEST_SIZE];

        suggest_question(question, commands_near(word));
        return cli_usage_error(cli, "there is no command \"%s\"%s%s%s%s", word, question,
                               *question ? "" : "; a job is shown by: gradsyncctl status ",
                               *question ? ""
                               : watch   ? "--watch "
                                         : "",
                               *question ? "" : word);
}

int main(int argc, char **argv) {
        struct cli cli = { 0 };
        bool help, watch;

        streams_fill();
        main_setup(&cli);
        int r = main_leading_options(&cli, argc, argv, &help, &watch), at = optind;
        if (r)
                return main_finish(&cli, r - 1);
        char *word = at < argc ? argv[at] : NULL;
        if (word && strcmp(word, "__complete") == 0)
                return main_finish(&cli, complete_line(argc - at - 1, argv + at + 1));
        if (!word && help) {
                commands_overview();
                return main_finish(&cli, CLI_OK);
        }
        cli.command = commands_find(word ? word : "status");
        if (!cli.command)
                return main_unknown_command(&cli, word, watch);
        if (!word)
                return main_finish(&cli, cli.command->run(&cli, argc, argv));
        /* Moves the command in front of the options that stood before it. */
        memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv);
        argv[1] = word;
        return main_finish(&cli, cli.command->run(&cli, argc - 1, argv + 1));
}
