// SPDX-License-Identifier: Apache-2.0
/* Options, complaints and help, as all commands have them: see cli.h. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/base/suggest.h"
#include "client/cli/base/user.h"

/* Options without a letter get values from here on, above those of all letters. */
#define OPT_OWN 1000

const char cli_common_help[] =
        "  -s, --socket PATH     talk to the daemon at this socket\n"
        "  -d, --device DEVICE   talk to the daemon of this device, at its default place\n"
        "  -h, --help            show this\n"
        "  -V, --version         show the version\n";

const struct cli_exit_meaning cli_exits[] = {
        { CLI_OK, "fine" },
        { CLI_ERROR, "an error" },
        { CLI_USAGE, "wrong usage" },
        { CLI_NO_DAEMON, "no daemon is running" },
        { CLI_UNKNOWN_JOB, "no such job" },
        { CLI_DENIED, "permission denied" },
        { 0 },
};

void cli_command_help(const struct cli_command *command, FILE *to) {
        fprintf(to, "Usage: gradsyncctl %s [OPTIONS]%s%s\n\n%s.\n", command->name,
                *command->arguments ? " " : "", command->arguments, command->summary);
        if (*command->help)
                fprintf(to, "%s%s", command->help[0] == ' ' ? "\n" : "", command->help);
        fputs(strstr(command->help, "  -") ? "" : "\n", to);
        /* A command whose help explains --help also explains the other common options that it takes. */
        if (!strstr(command->help, "--help"))
                fputs(cli_common_help, to);
}

void cli_show_version(void) {
        printf("gradsyncctl %s\n", GRADSYNC_RELEASE);
}

/* Complains about an unknown letter. In "-keep-going" the user may mean the whole word. */
static int cli_unknown_letter(const struct cli *cli, char **argv, const struct option *longs) {
        const char *word = argv[optind], *best = NULL;

        if (word && word[0] == '-' && word[1] == (char)optopt && word[1] != '-')
                best = suggest_option(word, longs);
        return cli_refuse_option(cli, "unknown option -%c%s%s%s", optopt, best ? "; did you mean --" : "",
                                 best ? best : "", best ? "?" : "");
}

int cli_common_option(struct cli *cli, int option, char **argv, const struct option *longs) {
        char text[SUGGEST_SIZE];

        switch (option) {
        case CLI_OPT_SOCKET: cli->socket = optarg; return 0;
        case CLI_OPT_DEVICE: cli->device = optarg; return 0;
        case CLI_OPT_HELP: cli_command_help(cli->command, stdout); return 1 + CLI_OK;
        case CLI_OPT_VERSION: cli_show_version(); return 1 + CLI_OK;
        case ':': return cli_refuse_option(cli, "option %s needs a value", argv[optind - 1]);
        default:
                /* getopt_long() leaves the letter of a long option in optopt if the option has a value that
                 * it does not take. */
                if (optopt && strchr(argv[optind - 1], '='))
                        return cli_refuse_option(cli, "option %s takes no value", argv[optind - 1]);
                if (optopt && optopt < OPT_OWN)
                        return cli_unknown_letter(cli, argv, longs);
                return cli_refuse_option(cli, "%s", suggest_complaint(text, argv[optind - 1], longs));
        }
}

bool cli_is_period(const char *word) {
        return *word && word[strspn(word, "0123456789.")] == '\0';
}

bool cli_period_follows(int argc, char **argv) {
        return !optarg && optind < argc && cli_is_period(argv[optind]);
}

/* "0", with any number of digits. */
static bool cli_is_no_time(const char *text) {
        const char *rest = text + strspn(text, "0");

        return rest > text && (!*rest || (*rest == '.' && !rest[1 + strspn(rest + 1, "0")]));
}

/* 0 to go on, else 1 + the exit code. */
static int cli_take_option(const struct cli *cli, const struct cli_option *own) {
        struct cli_list *list = own->value;

        switch (own->kind) {
        case CLI_FLAG: *(bool *)own->value = true; return 0;
        case CLI_TEXT: *(const char **)own->value = optarg; return 0;
        case CLI_TEXTS: list->text[list->n++] = optarg; return 0;
        case CLI_NUMBER:
                if (cli_parse_number(optarg, own->min, own->max, own->value))
                        return 0;
                return cli_refuse_option(cli, "%s, not \"%s\"", own->wants, optarg);
        default:
                if (own->kind == CLI_DELAY && cli_is_no_time(optarg)) {
                        *(unsigned long *)own->value = 0;
                        return 0;
                }
                if (cli_parse_seconds(optarg ? optarg : "1", own->value))
                        return 0;
                if (own->kind == CLI_PERIOD)
                        return cli_refuse_option(
                                cli,
                                "--%s needs a number of seconds, not \"%s\"; the name of a job "
                                "stands apart: gradsyncctl %s --%s JOB",
                                own->name, optarg, cli->command->name, own->name);
                return cli_refuse_option(cli, "--%s needs a number of seconds, not \"%s\"", own->name,
                                         optarg);
        }
}

int cli_options(struct cli *cli, int argc, char **argv, bool lead, const struct cli_option *own, size_t n) {
        struct option longs[CLI_OPTIONS_MOST + CLI_COMMON_N + 1] = { CLI_COMMON_LONG };
        char shorts[3 * CLI_OPTIONS_MOST + 16],
                *at = stpcpy(shorts, lead ? "+:" CLI_COMMON_SHORT : ":" CLI_COMMON_SHORT);
        int option;

        assert(n <= CLI_OPTIONS_MOST);
        for (size_t i = 0; i < n; i++) {
                int argument = own[i].kind == CLI_FLAG     ? no_argument
                               : own[i].kind == CLI_PERIOD ? optional_argument
                                                           : required_argument;
                longs[CLI_COMMON_N + i] = (struct option){ own[i].name, argument, NULL, OPT_OWN + (int)i };
                if (own[i].letter)
                        at += sprintf(at, "%c%.*s", own[i].letter, argument, "::");
        }
        optind = 0;
        opterr = 0;
        while ((option = getopt_long(argc, argv, shorts, longs, NULL)) >= 0) {
                size_t i = 0;
                while (i < n && option != OPT_OWN + (int)i && option != own[i].letter)
                        i++;
                if (i < n && own[i].kind == CLI_PERIOD && cli_period_follows(argc, argv))
                        optarg = argv[optind++];
                int r = i < n ? cli_take_option(cli, &own[i]) : cli_common_option(cli, option, argv, longs);
                if (r)
                        return r;
        }
        return 0;
}

int cli_plain_options(struct cli *cli, int argc, char **argv, bool *ret_json) {
        return cli_options(cli, argc, argv, false,
                           &(struct cli_option){ "json", 'j', CLI_FLAG, .value = ret_json },
                           ret_json != NULL);
}

int cli_job(struct cli *cli, const char *word, const char **ret) {
        free(cli->job);
        int r = user_resolve_job(word, &cli->job);

        *ret = cli->job;
        cli->job_word = word;
        if (r == -ENOENT) {
                cli_complain("there is no job \"%s\": this host has no user \"%.*s\" (a uid works, too)",
                             word, (int)strcspn(word, "/"), word);
                return 1 + CLI_UNKNOWN_JOB;
        }
        if (r < 0) {
                cli_complain("cannot look the user of \"%s\" up: %s", word, strerror(-r));
                return 1 + CLI_ERROR;
        }
        return 0;
}

int cli_one_job(struct cli *cli, int argc, char **argv, const char **ret) {
        const char *word = argv[optind];

        if (argc - optind > 1)
                return cli_refuse_option(cli, "%s takes one job at most", cli->command->name);
        if (word && !*word)
                return cli_refuse_option(cli, "the name of a job is never empty");
        return word ? cli_job(cli, word, ret) : 0;
}

const char *cli_job_typed(const struct cli *cli, const char *job) {
        return job && job == cli->job ? cli->job_word : job;
}

void cli_deinit(struct cli *cli) {
        free(cli->job);
        cli->job = NULL;
}

static struct {
        void (*fn)(void *data);
        void *data;
} cli_clearing;

void cli_clear_with(void (*fn)(void *data), void *data) {
        cli_clearing.fn = fn;
        cli_clearing.data = data;
}

void cli_clear(void) {
        if (cli_clearing.fn)
                cli_clearing.fn(cli_clearing.data);
}

static void cli_print_complaint(const char *format, va_list args) {
        _cleanup_(freep) char *text = format_new_list(format, args), *shown = text ? escape_text(text) : NULL;

        fflush(stdout);
        cli_clear();
        fprintf(stderr, "gradsyncctl: %s\n", shown ? shown : "out of memory");
}

void cli_complain(const char *format, ...) {
        va_list args;

        va_start(args, format);
        cli_print_complaint(format, args);
        va_end(args);
}

int cli_usage_error(const struct cli *cli, const char *format, ...) {
        const char *name = cli->command ? cli->command->name : "";
        va_list args;

        va_start(args, format);
        cli_print_complaint(format, args);
        va_end(args);
        fprintf(stderr, "Try: gradsyncctl help%s%s\n", *name ? " " : "", name);
        return CLI_USAGE;
}

int cli_out_of_memory(void) {
        cli_complain("out of memory");
        return CLI_ERROR;
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
