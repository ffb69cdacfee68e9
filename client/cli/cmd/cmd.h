/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of gradsyncctl: each reads its words, does its work and returns an exit code. */
#pragma once

#include "client/cli/base/cli.h"
#include "client/cli/run/run.h"

int cmd_status(struct cli *cli, int argc, char **argv);
int cmd_list(struct cli *cli, int argc, char **argv);
int cmd_top(struct cli *cli, int argc, char **argv);
int cmd_trace(struct cli *cli, int argc, char **argv);
int cmd_metrics(struct cli *cli, int argc, char **argv);
int cmd_doctor(struct cli *cli, int argc, char **argv);
int cmd_demo(struct cli *cli, int argc, char **argv);
int cmd_key(struct cli *cli, int argc, char **argv);
int cmd_run(struct cli *cli, int argc, char **argv);
/* evict, pause, resume and drain: cli->command says which. */
int cmd_control(struct cli *cli, int argc, char **argv);

/* The part of `run` after its options: starts the processes, and waits for their end. An exit code. */
int cmd_run_with(const struct cli *cli, const struct run_options *options);
