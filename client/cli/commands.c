// SPDX-License-Identifier: Apache-2.0
/*
 * The table of commands with their help, and the command that shows it. The man page says more; `gradsyncctl
 * help COMMAND` is what fits on a screen.
 */
#include <string.h>

#include "client/cli/base/suggest.h"
#include "client/cli/cmd/cmd.h"
#include "client/cli/commands.h"
#include "proto/spelling.h"

static int commands_help(struct cli *cli, int argc, char **argv);
static int commands_version(struct cli *cli, int argc, char **argv);

#define NO_DAEMON_HELP "  -h, --help            show this\n  -V, --version         show the version\n"

#define TOKEN_HELP "      --token TOKEN     of the job, if it has one (better: GRADSYNC_JOB_TOKEN)\n"

static const struct cli_command commands[] = {
        { "status", "[JOB]", "Show the daemon, its jobs, and whom a waiting step waits for",
          "JOB is NAME or USER/NAME. This is also what gradsyncctl does without a command.\n"
          "\n"
          "  -j, --json            one JSON document (schema_version 1)\n"
          "  -w, --watch[=SECS]    show it again every SECS seconds (1) until interrupted, and wait\n"
          "                        for a daemon that is gone; with --json one document a line\n",
          cmd_status },
        { "list", "jobs|clients|links", "List jobs, connected processes, or connections between daemons",
          "      --ended           of jobs: those that have ended lately, when, and why; the latest first\n"
          "  -j, --json            one JSON document (schema_version 1)\n",
          cmd_list },
        { "top", "[JOB]", "Show jobs and members live: rates, waits, who is late",
          "Rates and shares are those of the last interval; the first page has those since the start.\n"
          "On a terminal, q ends, r, j, e, l, w and s sort, and h explains these keys.\n"
          "\n"
          "  -b, --batch           plain text, page after page, for a file or a pipe\n"
          "  -n, --count N         end after N pages\n"
          "  -i, --interval SECS   time between two pages (1)\n",
          cmd_top },
        { "trace", "JOB -o FILE", "Write the last steps of a job as a trace for Perfetto",
          "JOB is NAME or USER/NAME; jobs that have ended lately count too. Open FILE with\n"
          "https://ui.perfetto.dev or chrome://tracing.\n"
          "\n"
          "  -o, --output FILE     where to write it; \"-\" is the standard output\n",
          cmd_trace },
        { "metrics", "", "Write the state of a daemon as metrics for Prometheus",
          "The daemon gives out the same at its metrics_socket and metrics_listen, if it has them.\n"
          "\n"
          "  -o, --output FILE     replace FILE as a whole, and leave it if something fails; \"-\" is the\n"
          "                        standard output\n",
          cmd_metrics },
        { "doctor", "", "Check what usually goes wrong, and say how to repair it",
          "Ends with 0 if nothing fails (warnings are no failure), else with 1.\n"
          "\n"
          "  -j, --json            one JSON document (schema_version 1)\n",
          cmd_doctor },
        { "demo", "", "Show in a minute what happens when a trainer stops, or dies",
          "Trains twice on real data, with a private daemon; the second time one trainer is "
          "stopped and another\n"
          "one killed. Ends with 0 if both trainings come to the same parameters, bit for bit.\n"
          "\n"
          "  -n, --members N       number of trainers, 3 to 8 (3)\n"
          "      --hosts N         2: ranks 1 and 2 are on a daemon that stands for another host (1)\n"
          "      --pause SECS      wait between the two trainings, and leave the stopped one so much longer\n"
          "  -j, --json            no story, but one JSON document of what was measured\n"
          "  -d, --device DEVICE   the device of that daemon\n" NO_DAEMON_HELP,
          cmd_demo },
        { "run", "-n N -- CMD [ARG…]", "Start N processes as one job",
          "Uses the daemon that is reachable, else a private one that ends with the job.\n"
          "\n"
          "  -n, --members N       number of processes, 1 to 256\n"
          "      --job NAME        name of the job (run-PID)\n"
          "      --private         start a private daemon even if another is reachable\n"
          "      --daemon-arg ARG  pass ARG to the private daemon; may be repeated\n"
          "      --restart K       start a process that fails again, up to K times each, as long as "
          "none has\n"
          "                        ended; the others wait for it\n"
          "      --keep-going      when a process fails, let the others go on\n"
          "      --log-dir DIR     write what each process writes to a file of its own in DIR, too\n"
          "      --grace SECS      time between SIGTERM and SIGKILL (10)\n",
          cmd_run },
        { "evict", "JOB RANK", "End a member of a job as if it were lost",
          "JOB is NAME or USER/NAME. For the job's owner, root and the admin group.\n"
          "\n" TOKEN_HELP,
          cmd_control },
        { "pause", "JOB", "Hold a job's steps back; its members wait, and are not blamed",
          "JOB is NAME or USER/NAME. For the job's owner, root and the admin group.\n"
          "\n" TOKEN_HELP,
          cmd_control },
        { "resume", "[JOB]", "Let a paused job go on, or, without JOB, a drained daemon",
          "JOB is NAME or USER/NAME. For whoever may pause, or drain.\n"
          "\n" TOKEN_HELP,
          cmd_control },
        { "drain", "", "Let open steps end and begin nothing new, on the whole daemon",
          "Ends when nothing is open any more. For root, the daemon's user and the admin group.\n"
          "\n"
          "      --no-wait         do not wait for that\n",
          cmd_control },
        { "key", "new", "Make a key by which the daemons of a cluster know each other",
          "Prints a line for the file that key_file of their configuration names. All of them "
          "need the same one;\n"
          "nobody else may read it (mode 0600).\n"
          "\n"
          "      --name NAME       of the key (main); two keys in one file need different ones\n"
          "      --uids LIST       users of whom a daemon with it may have jobs, as in "
          "1000,2000-2999 (all)\n",
          cmd_key },
        { "help", "[COMMAND]", "Explain a command", NO_DAEMON_HELP, commands_help },
        { "version", "", "Show the version", NO_DAEMON_HELP, commands_version },
};

const struct cli_command *commands_find(const char *name) {
        for (size_t i = 0; i < array_size(commands); i++)
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        return NULL;
}

const struct cli_command *commands_at(size_t index) {
        return index < array_size(commands) ? &commands[index] : NULL;
}

const char *commands_near(const char *name) {
        struct spelling spelling = { .word = name };

        for (size_t i = 0; i < array_size(commands); i++)
                spelling_try(&spelling, commands[i].name);
        return spelling.best;
}

void commands_overview(void) {
        printf("Usage: gradsyncctl [OPTIONS] [COMMAND] [ARGUMENTS]\n\n"
               "Shows and drives gradsync, the gradient synchronisation service.\n\n");
        for (size_t i = 0; i < array_size(commands); i++)
                printf("  %-8s %s\n", commands[i].name, commands[i].summary);
        printf("\n%s\n"
               "These may stand before or behind the command, and so may --json and --watch "
               "where a command has them.\n\nExit status:",
               cli_common_help);
        for (const struct cli_exit_meaning *each = cli_exits; each->text; each++)
                printf("%s %d %s", each == cli_exits ? "" : ",", each->code, each->text);
        printf(".\n");
}

static int commands_version(struct cli *cli, int argc, char **argv) {
        int r = cli_plain_options(cli, argc, argv, NULL);

        if (r)
                return r - 1;
        if (optind < argc)
                return cli_usage_error(cli, "version takes no argument");
        cli_show_version();
        return CLI_OK;
}

static int commands_help(struct cli *cli, int argc, char **argv) {
        int r = cli_plain_options(cli, argc, argv, NULL);

        if (r)
                return r - 1;
        if (argc - optind > 1)
                return cli_usage_error(cli, "help takes one command at most");
        if (optind == argc) {
                commands_overview();
                return CLI_OK;
        }
        const struct cli_command *command = commands_find(argv[optind]);
        char question[SUGGEST_SIZE];
        if (!command)
                return cli_usage_error(cli, "there is no command \"%s\"%s", argv[optind],
                                       suggest_question(question, commands_near(argv[optind])));
        cli_command_help(command, stdout);
        return CLI_OK;
}
