/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs this process may really use: affinity mask and the CPU limit of its cgroup (v1 or v2,
 * every ancestor). */
#pragma once

#include <sched.h>
#include <stdbool.h>

/* At least 1. A limit of 1.5 CPUs counts as 2. */
unsigned cpus_available(void);

/* The cgroup's limit alone, read below `sysfs_root` ("/sys/fs/cgroup") for the process whose cgroup file is
 * `proc_cgroup` ("/proc/self/cgroup"): CPUs, rounded up, or 0 for none. Separate so that tests can lay out
 * a tree. */
unsigned cpus_cgroup_limit(const char *sysfs_root, const char *proc_cgroup);

/* Parses "0-3,8" into a set. False if malformed, empty, or above CPU_SETSIZE. */
bool cpus_parse(const char *text, cpu_set_t *ret);
