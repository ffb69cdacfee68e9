/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What --plain writes, for programs that cut lines into columns: no header, tabs between the columns, plain
 * numbers in bytes and seconds, nothing where a value is not known. The man page names the columns; new ones
 * come behind the others only.
 */
#pragma once

#include <stdio.h>

#include "client/cli/ask/ended.h"
#include "client/cli/view/figures.h"

void plain_status(const struct observation *observation, FILE *to);
void plain_jobs(const struct observation *observation, FILE *to);
void plain_ended(const struct ended_jobs *jobs, FILE *to);
void plain_clients(const struct observation *observation, FILE *to);
void plain_links(const struct observation *observation, FILE *to);
void plain_top(const struct figures_list *list, FILE *to);
