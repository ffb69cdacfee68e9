// SPDX-License-Identifier: Apache-2.0
/*
 * The table of commands with their help, what is common to their options, and how usage mistakes are told.
 * The man page says more; `gradsyncctl help COMMAND` is what fits on a screen.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "escape.h"

static const char common_help[] =
        "  -s, --socket PATH     talk to the daemon at this socket\n"
        "  -d, --device DEVICE   talk to the daemon of this device, at its default place\n"
        "  -h, --help            show this\n";

static const struct command commands[] = {
        { "status", "[JOB]", "Show the daemon, its jobs, and whom a waiting step waits for",
          "JOB is NAME or UID/NAME. This is also what gradsyncctl does without a command.\n"
          "\n"
          "  -j, --json            one JSON document (schema_version 1)\n"
          "  -w, --watch[=SECS]    show it again every SECS seconds (1) until interrupted;\n"
          "                        with --json one document a line\n",
          cmd_status },
        { "list", "jobs|clients", "List jobs, or connected processes",
          "  -j, --json            one JSON document (schema_version 1)\n", cmd_list },
        { "top", "[JOB]", "Show jobs and members live: rates, waits, who is late",
          "Rates and shares are those of the last interval; the first page has those since the start.\n"
          "\n"
          "  -b, --batch           plain text, page after page, for a file or a pipe\n"
          "  -n, --count N         end after N pages\n"
          "  -i, --interval SECS   time between two pages (1)\n",
          cmd_top },
        { "trace", "JOB -o FILE", "Write the last steps of a job as a trace for Perfetto",
          "JOB is NAME or UID/NAME; jobs that have ended lately count too. Open FILE with\n"
          "https://ui.perfetto.dev or chrome://tracing.\n"
          "\n"
          "  -o, --output FILE     where to write it; \"-\" is the standard output\n",
          cmd_trace },
        { "metrics", "", "Write the state of a daemon as OpenMetrics text",
          "The daemon gives out the same at its metrics_socket, if it has one.\n", cmd_metrics },
        { "doctor", "", "Check what usually goes wrong, and say how to repair it",
          "Ends with 0 if nothing fails (warnings are no failure), else with 1.\n"
          "\n"
          "  -j, --json            one JSON document (schema_version 1)\n",
          cmd_doctor },
        { "demo", "", "Show in a minute what happens when a trainer stops, or dies",
          "Trains twice on real data, with a private daemon; the second time one trainer is stopped and another\n"
          "one killed. Ends with 0 if both trainings come to the same parameters, bit for bit.\n"
          "\n"
          "  -n, --members N       number of trainers, 3 to 8 (3)\n"
          "      --pause SECS      wait between the two trainings, and leave the stopped one so much longer\n"
          "  -j, --json            no story, but one JSON document of what was measured\n"
          "  -d, --device DEVICE   the device of that daemon\n"
          "  -h, --help            show this\n",
          cmd_demo },
        { "run", "-n N -- CMD [ARG…]", "Start N processes as one job",
          "Uses the daemon that is reachable, else a private one that ends with the job.\n"
          "\n"
          "  -n, --members N       number of processes, 1 to 256\n"
          "      --job NAME        name of the job (run-PID)\n"
          "      --private         start a private daemon even if another is reachable\n"
          "      --daemon-arg ARG  pass ARG to the private daemon; may be repeated\n"
          "      --restart K       start a process that fails again, up to K times each, as long as none has\n"
          "                        ended; the others wait for it\n"
          "      --keep-going      when a process fails, let the others go on\n"
          "      --grace SECS      time between SIGTERM and SIGKILL (10)\n",
          cmd_run },
        { "evict", "JOB RANK", "End a member of a job as if it were lost",
          "JOB is NAME or UID/NAME. For the job's owner, root and the admin group.\n"
          "\n"
          "      --token TOKEN     of the job, if it has one (better: GRADSYNC_JOB_TOKEN)\n",
          cmd_evict },
        { "pause", "JOB", "Hold a job's steps back; its members wait, and are not blamed",
          "JOB is NAME or UID/NAME. For the job's owner, root and the admin group.\n"
          "\n"
          "      --token TOKEN     of the job, if it has one (better: GRADSYNC_JOB_TOKEN)\n",
          cmd_pause },
        { "resume", "[JOB]", "Let a paused job go on, or, without JOB, a drained daemon",
          "JOB is NAME or UID/NAME. For whoever may pause, or drain.\n"
          "\n"
          "      --token TOKEN     of the job, if it has one (better: GRADSYNC_JOB_TOKEN)\n",
          cmd_resume },
        { "drain", "", "Let open steps end and begin nothing new, on the whole daemon",
          "Ends when nothing is open any more. For root, the daemon's user and the admin group.\n"
          "\n"
          "      --no-wait         do not wait for that\n",
          cmd_drain },
        { "help", "[COMMAND]", "Explain a command", "  -h, --help            show this\n", cmd_help },
};

const struct command *cli_command_find(const char *name) {
        for (size_t i = 0; i < array_size(commands); i++)
                if (strcmp(commands[i].name, name) == 0)
                        return &commands[i];
        return NULL;
}

void cli_command_help(const struct command *command, FILE *to) {
        fprintf(to, "Usage: gradsyncctl %s [OPTIONS]%s%s\n\n%s.\n", command->name, *command->arguments ? " " : "",
                command->arguments, command->summary);
        if (*command->help)
                fprintf(to, "%s%s", command->help[0] == ' ' ? "\n" : "", command->help);
        fputs(strstr(command->help, "  -") ? "" : "\n", to);
        if (!strstr(command->help, "--help")) /* else it tells itself which of them mean something here */
                fputs(common_help, to);
}

int cmd_help(struct cli *cli, int argc, char **argv) {
        int r = cli_common_options(cli, argc, argv);

        if (r)
                return r - 1;
        if (argc - optind > 1)
                return cli_usage_error(cli, "help takes one command at most");
        if (optind < argc) {
                const struct command *command = cli_command_find(argv[optind]);
                if (!command)
                        return cli_usage_error(cli, "there is no command \"%s\"", argv[optind]);
                cli_command_help(command, stdout);
                return CLI_OK;
        }
        printf("Usage: gradsyncctl [OPTIONS] [COMMAND] [ARGUMENTS]\n\n"
               "Shows and drives gradsync, the gradient synchronisation service.\n\n");
        for (size_t i = 0; i < array_size(commands); i++)
                printf("  %-8s %s\n", commands[i].name, commands[i].summary);
        printf("\n%s  -V, --version         show the version; before the command only\n\n"
               "The others may stand before or behind the command, and so may --json and --watch where a command has them.\n\n"
               "Exit status: 0 fine, 1 error, 2 wrong usage, 3 daemon not running, 4 unknown job.\n",
               common_help);
        return CLI_OK;
}

int cli_common_option(struct cli *cli, int option, char **argv) {
        switch (option) {
        case CLI_OPT_SOCKET: cli->socket = optarg; return 0;
        case CLI_OPT_DEVICE: cli->device = optarg; return 0;
        case CLI_OPT_HELP: cli_command_help(cli_command_find(cli->command), stdout); return 1 + CLI_OK;
        case ':': return cli_refuse_option(cli, "option %s needs a value", argv[optind - 1]);
        default:
                if (optopt && optopt < CLI_OPT_OWN && !strchr(argv[optind - 1], '='))
                        return cli_refuse_option(cli, "unknown option -%c", optopt);
                return cli_refuse_option(cli, "option %s is unknown or takes no value", argv[optind - 1]);
        }
}

int cli_common_options(struct cli *cli, int argc, char **argv) {
        static const struct option longs[] = { CLI_COMMON_LONG, { 0 } };
        int option, r;

        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, ":" CLI_COMMON_SHORT, longs, NULL)) >= 0)
                if ((r = cli_common_option(cli, option, argv)))
                        return r;
        return 0;
}

static void complain(const char *format, va_list args) {
        _cleanup_(freep) char *text = NULL, *shown = NULL;

        if (vasprintf(&text, format, args) < 0)
                text = NULL;
        else
                shown = escape_text(text);
        fflush(stdout);
        fprintf(stderr, "gradsyncctl: %s\n", shown ? shown : "out of memory");
}

void cli_complain(const char *format, ...) {
        va_list args;

        va_start(args, format);
        complain(format, args);
        va_end(args);
}

int cli_usage_error(const struct cli *cli, const char *format, ...) {
        va_list args;

        va_start(args, format);
        complain(format, args);
        va_end(args);
        fprintf(stderr, "Try: gradsyncctl help%s%s\n", cli->command ? " " : "",
                cli->command ? cli->command : "");
        return CLI_USAGE;
}

bool cli_parse_number(const char *text, unsigned long min, unsigned long max, unsigned long *ret) {
        char *end;

        if (text[0] < '0' || text[0] > '9')
                return false;
        errno = 0;
        unsigned long value = strtoul(text, &end, 10);
        if (errno || *end || value < min || value > max)
                return false;
        *ret = value;
        return true;
}

bool cli_parse_seconds(const char *text, unsigned long *ret_ms) {
        char *end;

        if (!strchr("0123456789.", text[0]))
                return false;
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value) || value < 0.01 || value > 1e6)
                return false;
        *ret_ms = (unsigned long)(value * 1000 + 0.5);
        return true;
}
