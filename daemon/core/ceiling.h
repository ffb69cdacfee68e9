/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limit of memory under which the daemon runs: of its control group, or of one above. Beyond it the
 * kernel kills the daemon, and with it the jobs of all users, so the memory that the daemon itself gives out
 * (daemon_bytes) has to stay well below.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that a daemon needs beside daemon_bytes: for its program, libraries, threads, and pages of arenas
 * that clients did not touch first. */
#define CEILING_REST (UINT64_C(512) << 20)
/* Advice about a limit that is too low. It depends on whether systemd sets the limit. */
const char *ceiling_remedy(void);

/* The least limit. 0: there is none. Tests lay out trees of their own, as for cgroup_walk(). */
uint64_t ceiling_read(const char *sysfs_root, const char *proc_cgroup);
/* Whether this process may not have daemon_bytes and the rest; then a sentence is in `text`. */
bool ceiling_is_low(uint64_t daemon_bytes, char *text, size_t size);
