/* SPDX-License-Identifier: Apache-2.0 */
/* The output of `status` and `list` for people: one screen, no internal ids, every foreign name escaped. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "client/cli/ask/ended.h"
#include "client/cli/ask/observe.h"

/* `whole`: shows all members, however many; else a large job shows only those that stand out. */
void text_status(const struct observation *observation, bool whole, bool color, FILE *to);
void text_jobs(const struct observation *observation, bool color, FILE *to);
void text_clients(const struct observation *observation, bool color, FILE *to);
void text_links(const struct observation *observation, bool color, FILE *to);

void text_ended(const struct ended_jobs *jobs, bool color, FILE *to);

/* "waiting 3.2 s for rank 1 (pid 4242, stopped): bucket 3, parameter \"w\"". NULL only if memory is short. */
char *text_wait(const Wire__StatusWait *wait);
