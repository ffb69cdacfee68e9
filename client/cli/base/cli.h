/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base of all commands of gradsyncctl: exit codes, the description of a command, common options, and
 * reports of mistakes. Data goes to stdout, everything else to stderr. Only commands.c knows which commands
 * there are.
 */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/lib/base/environ.h"
#include "proto/cleanup.h"

enum cli_exit {
        CLI_OK = 0,
        CLI_ERROR = 1,
        CLI_USAGE = 2,
        CLI_NO_DAEMON = 3,
        CLI_UNKNOWN_JOB = 4,
        CLI_DENIED = 5,
};

/* The meaning of each exit code. The table ends with an entry without a text; the man page has the same
 * table. */
extern const struct cli_exit_meaning {
        enum cli_exit code;
        const char *text;
} cli_exits[];

struct cli {
        const char *socket;                /* --socket, or NULL */
        const char *device;                /* --device, or NULL */
        const struct cli_command *command; /* the one that runs; NULL while it is not known */
        bool color;                        /* stdout may be coloured */
        bool color_err;                    /* stderr may be */
        char *job;                         /* the one that the command is about, or NULL */
        const char *job_word;              /* that one as it was typed */
        unsigned patience_ms;              /* for each answer of a daemon; 0: as long as is usual */
};

struct cli_command {
        const char *name;
        const char *arguments; /* shown after the name in the usage line */
        const char *summary;
        const char *help; /* options and remarks */
        int (*run)(struct cli *cli, int argc, char **argv);
};

/* Long options that every command takes. */
enum { CLI_OPT_SOCKET = 's', CLI_OPT_DEVICE = 'd', CLI_OPT_HELP = 'h', CLI_OPT_VERSION = 'V' };
#define CLI_COMMON_SHORT "s:d:hV"
#define CLI_COMMON_N 4
#define CLI_COMMON_LONG                                                                                      \
        { "socket", required_argument, NULL, CLI_OPT_SOCKET },                                               \
                { "device", required_argument, NULL, CLI_OPT_DEVICE },                                       \
                { "help", no_argument, NULL, CLI_OPT_HELP }, {                                               \
                "version", no_argument, NULL, CLI_OPT_VERSION                                                \
        }

/* The help text about the options that all commands have. */
extern const char cli_common_help[];

/* Takes an option that the command itself does not know: 0 to go on, else 1 + the exit code to end with.
 * `longs`: all options of the command, ended by zeros. */
int cli_common_option(struct cli *cli, int option, char **argv, const struct option *longs);

void cli_show_version(void);

/* Whether the word is a number such as the 2 in "-w 2", for an option whose value may be left out. */
bool cli_is_period(const char *word);
/* Whether the next word is such a number, and belongs to the option. */
bool cli_period_follows(int argc, char **argv);

/* Texts of an option that may be repeated. */
struct cli_list {
        const char **text; /* the caller's */
        size_t n;
};

/* An option of a command's own, and where its value goes. */
struct cli_option {
        const char *name;
        char letter; /* '\0': it has none */
        enum {
                CLI_FLAG,    /* bool: becomes true */
                CLI_TEXT,    /* const char * */
                CLI_TEXTS,   /* struct cli_list: one more */
                CLI_NUMBER,  /* unsigned long: min to max */
                CLI_SECONDS, /* unsigned long, in milliseconds */
                CLI_DELAY,   /* the same; may be 0 */
                CLI_PERIOD,  /* the same as SECONDS; 1 s if it is left out */
        } kind;
        void *value;
        const char *wants; /* NUMBER: the complaint about any other text */
        unsigned long min, max;
};

#define CLI_OPTIONS_MOST 8u /* of a command's own */

/* Reads all options of a command and leaves `optind` at the first word that is no option; `lead`: stops at
 * that word. The result is that of cli_common_option(). */
int cli_options(struct cli *cli, int argc, char **argv, bool lead, const struct cli_option *own, size_t n);
/* The same for a command without options of its own, except --json if `ret_json` is given. */
int cli_plain_options(struct cli *cli, int argc, char **argv, bool *ret_json);

/* Gives the name of a job as daemons know it: USER/NAME becomes UID/NAME. Complains about a user that this
 * host does not know. The name lives until cli_deinit(); a command has one job. The result is that of
 * cli_common_option(). */
int cli_job(struct cli *cli, const char *word, const char **ret);
/* Takes the one word that may follow the options as the name of a job. The result is that of
 * cli_common_option(). */
int cli_one_job(struct cli *cli, int argc, char **argv, const char **ret);
/* The name of a job as the user typed it, for people; `job` itself if the command is about another one. */
const char *cli_job_typed(const struct cli *cli, const char *job);
void cli_deinit(struct cli *cli);

/* Writes "gradsyncctl: …" to stderr; cli_usage_error() adds where the usage is explained, and returns
 * CLI_USAGE. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage_error(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
int cli_out_of_memory(void); /* says so, and returns CLI_ERROR */

/* Calls the function that was set with cli_clear_with() (NULL: none), which removes temporary output from the
 * terminal. Complaints call it by themselves. */
void cli_clear(void);
void cli_clear_with(void (*fn)(void *data), void *data);

/* cli_usage_error() for parsers of options, which return 1 + the exit code. */
#define cli_refuse_option(...) (1 + cli_usage_error(__VA_ARGS__))

/* A number of an option: decimal, min..max. */
bool cli_parse_number(const char *text, unsigned long min, unsigned long max, unsigned long *ret);
/* A time in seconds, with decimals, as milliseconds: 0.01..1e6 s. */
bool cli_parse_seconds(const char *text, unsigned long *ret_ms);

void cli_command_help(const struct cli_command *command, FILE *to);
