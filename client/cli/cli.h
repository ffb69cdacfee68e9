/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every command of gradsyncctl shares: exit codes, the table entry of a command, the options common to
 * all, and how mistakes are told. Data goes to stdout, everything else to stderr.
 */
#pragma once

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/cleanup.h"

enum cli_exit {
        CLI_OK = 0,
        CLI_ERROR = 1,
        CLI_USAGE = 2,
        CLI_NO_DAEMON = 3,
        CLI_UNKNOWN_JOB = 4,
};

struct cli {
        const char *socket;  /* --socket, or NULL */
        const char *device;  /* --device, or NULL */
        const char *command; /* name of the running command */
        bool color;          /* stdout may be coloured */
        bool color_err;      /* stderr may be */
};

struct command {
        const char *name;
        const char *arguments; /* shown behind the name in the usage line */
        const char *summary;
        const char *help; /* options and remarks */
        int (*run)(struct cli *cli, int argc, char **argv);
};

/* Long options that every command takes; their values stay clear of letters. */
enum { CLI_OPT_SOCKET = 's', CLI_OPT_DEVICE = 'd', CLI_OPT_HELP = 'h', CLI_OPT_OWN = 1000 };
#define CLI_COMMON_SHORT "s:d:h"
#define CLI_COMMON_LONG                                                                                      \
        { "socket", required_argument, NULL, CLI_OPT_SOCKET },                                               \
                { "device", required_argument, NULL, CLI_OPT_DEVICE }, {                                     \
                "help", no_argument, NULL, CLI_OPT_HELP                                                      \
        }

/* Takes an option that the command itself did not know: 0 to go on, else 1 + the exit code to end with. */
int cli_common_option(struct cli *cli, int option, char **argv);
/* Takes all options of a command that has none of its own: the same, with `optind` at the first word that is none. */
int cli_common_options(struct cli *cli, int argc, char **argv);

/* "gradsyncctl: …" on stderr; the second adds where the usage is explained and returns CLI_USAGE. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_usage_error(const struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for parsers of options, which return 1 + the exit code. */
#define cli_refuse_option(...) (1 + cli_usage_error(__VA_ARGS__))

/* A number of an option: decimal, min..max. */
bool cli_parse_number(const char *text, unsigned long min, unsigned long max, unsigned long *ret);
/* A time in seconds, with decimals, as milliseconds: 0.01..1e6 s. */
bool cli_parse_seconds(const char *text, unsigned long *ret_ms);

const struct command *cli_command_find(const char *name);
void cli_command_help(const struct command *command, FILE *to);

int cmd_status(struct cli *cli, int argc, char **argv);
int cmd_list(struct cli *cli, int argc, char **argv);
int cmd_doctor(struct cli *cli, int argc, char **argv);
int cmd_demo(struct cli *cli, int argc, char **argv);
int cmd_run(struct cli *cli, int argc, char **argv);
int cmd_trace(struct cli *cli, int argc, char **argv);
int cmd_metrics(struct cli *cli, int argc, char **argv);
int cmd_top(struct cli *cli, int argc, char **argv);
int cmd_evict(struct cli *cli, int argc, char **argv);
int cmd_pause(struct cli *cli, int argc, char **argv);
int cmd_resume(struct cli *cli, int argc, char **argv);
int cmd_drain(struct cli *cli, int argc, char **argv);
int cmd_help(struct cli *cli, int argc, char **argv);
