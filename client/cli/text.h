/* SPDX-License-Identifier: Apache-2.0 */
/* What `status` and `list` show to people: one screen, no internal ids, every foreign name escaped. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "observe.h"

/* `whole`: all members, however many; else only those that stand out where a job is large. */
void text_status(const struct observation *observation, bool whole, bool color, FILE *to);
void text_jobs(const struct observation *observation, bool color, FILE *to);
void text_clients(const struct observation *observation, bool color, FILE *to);

/* How often a job went on after it had lost a member. */
uint64_t text_recoveries(const Wire__StatusJob *job);

/* Jobs and members in one table, compared with what was seen `elapsed_ms` ago (NULL: nothing). */
void text_top(const struct observation *observation, const struct observation *before, uint64_t elapsed_ms,
              bool color, FILE *to);

/* "waiting 3.2 s for rank 1 (pid 4242, stopped): bucket 3, parameter \"w\"". NULL only if memory is short. */
char *text_wait(const Wire__StatusWait *wait);
/* Whether the wait is for a bucket of a step; other waits have no plan, bucket and step, whatever the frame
 * says. */
bool text_wait_is_step(const Wire__StatusWait *wait);
