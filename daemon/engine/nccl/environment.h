/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings that NCCL reads from the environment. It has some two hundred settings there, and in files,
 * which decide how fast it is and whether it works at all. Here it gets those of the daemon's configuration,
 * and no others.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether the settings are "NAME=VALUE" words with spaces between them, and each name begins with NCCL_. */
bool environment_valid(const char *settings);
/* Whether the settings let two ranks of a communicator be on one GPU, which is for tests. */
bool environment_shares_gpu(const char *settings);
/* Prepares the environment, while this process has one thread and has loaded neither NCCL nor a driver.
 * Settings of other origin are removed; `ignored` gets their names, with ", " between them, or "". */
void environment_prepare(const char *settings, char *ignored, size_t size);
/* Returns the descriptor to which NCCL logs from then on, for transports.h; -1: NCCL logs where the settings
 * say. */
int environment_log(void);
/* Lists the settings of a file that NCCL reads in any case, except settings of the environment, which come
 * first: in the form of `ignored`. */
void environment_list_file(const char *path, char *names, size_t size);

#define ENVIRONMENT_FILE "/etc/nccl.conf"
