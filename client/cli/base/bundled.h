/* SPDX-License-Identifier: Apache-2.0 */
/* Files that belong to this very gradsyncctl: installed with it, or built in the same tree. */
#pragma once

#include <stddef.h>

#include "proto/advice.h"

/* The path that `pattern` means: its one "%s" stands for the folder of the running program. NULL if memory is
 * short or the folder is unknown. The file need not exist. */
char *bundled_path(const char *pattern);
/* The first of these paths at which an executable file is, or NULL. */
char *bundled_executable(const char *const *patterns, size_t n);
/* The gradsyncd that advice names, else the bare name. NULL if memory is short. */
char *bundled_daemon(void);
/* The example program of that name, installed or in a build tree: NULL if there is none. A name with a "/" is
 * none. */
char *bundled_example(const char *name);
/* Finds out what advice depends on: this user, this host, and the programs beside this one. */
void bundled_advice(struct advice *ret);
