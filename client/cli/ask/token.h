/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token of a job, for an order by the job's owner. A job of `gradsyncctl run` has one that the owner has
 * never seen; the environment of its processes has it, which their owner may read.
 */
#pragma once

#include <stdbool.h>

#include "client/cli/ask/talk.h"

#define TOKEN_VARIABLE "GRADSYNC_JOB_TOKEN"

/* Looks for it in the processes that the daemon names as the job's members. False if none shows one. */
bool token_find(struct talk *talk, const char *path, const char *job, char ret[LIMIT_TOKEN + 1]);
