/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL reads of the environment. It has some two hundred settings there, and in files, which decide how
 * fast it is and whether it works at all: here it gets those of the daemon's configuration, and no others.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether these are "NAME=VALUE" words with spaces between them, and each name begins with NCCL_. */
bool environment_valid(const char *settings);
/* Whether they let two ranks of a communicator be on one GPU, which is for tests. */
bool environment_shares_gpu(const char *settings);
/* Makes the environment what it is to be, while this process has one thread and has loaded neither NCCL nor a
 * driver. What somebody else has set is taken out; in `ignored`, if there is something, are the names, with
 * ", " between them. */
void environment_prepare(const char *settings, char *ignored, size_t size);
/* Where NCCL writes what it does from then on, for transports.h; -1: where the settings say. */
int environment_log(void);
/* The settings of a file that NCCL reads whatever one does, and that are none of ours: as `ignored`. */
void environment_list_file(const char *path, char *names, size_t size);

#define ENVIRONMENT_FILE "/etc/nccl.conf"
