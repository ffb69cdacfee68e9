/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of users beside their numbers. The daemon knows numbers only; names are those that this host has now.
 */
#pragma once

#include <stdint.h>

#define USER_SIZE 96

/* The user's name, or the number if it has none. Returns its buffer. */
char *user_show(char out[USER_SIZE], uint32_t uid);
/* "uid 0 (root)", "uid 61001" if it has no name. Returns its buffer. */
char *user_show_both(char out[USER_SIZE], uint32_t uid);

/* The name of a job as a daemon knows it: "root/resnet" becomes "0/resnet"; the caller frees it. A number
 * before the slash is always a uid; a name without a slash stays as it is. 0 or a negative errno: -ENOENT if
 * there is no such user. */
int user_resolve_job(const char *job, char **ret);
