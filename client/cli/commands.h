/* SPDX-License-Identifier: Apache-2.0 */
/* Which commands gradsyncctl has. Only main.c and complete.c ask. */
#pragma once

#include "client/cli/base/cli.h"

/* The command of that name, or NULL. */
const struct cli_command *commands_find(const char *name);
/* The commands, in the order in which they are explained; NULL after the last one. */
const struct cli_command *commands_at(size_t index);
/* The name of the command that was likely meant, or NULL. */
const char *commands_near(const char *name);
/* Prints the overview of `gradsyncctl help`. */
void commands_overview(void);
