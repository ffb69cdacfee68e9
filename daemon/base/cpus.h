/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPUs this process may use, and how many it may really use: affinity mask and the CPU limit of its
 * cgroup (v1 or v2, every ancestor). */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* At least 1. A limit of 1.5 CPUs counts as 2. */
unsigned cpus_available(void);

/* The cgroup's limit alone, read below `sysfs_root` ("/sys/fs/cgroup") for the process whose cgroup file is
 * `proc_cgroup` ("/proc/self/cgroup"): CPUs, rounded up, or 0 for none. Separate so that tests can lay out
 * a tree. */
unsigned cpus_cgroup_limit(const char *sysfs_root, const char *proc_cgroup);

/* Parses "0-3,8" into a set. False if malformed, empty, or above CPU_SETSIZE. */
bool cpus_parse(const char *text, cpu_set_t *ret);
/* The same text of a set; "" for an empty one. What does not fit is left out. */
void cpus_format(const cpu_set_t *set, char *text, size_t size);

/* Those of the set that a thread of this process can be bound to: online, and in its cpuset. The kernel
 * leaves the others out without a word, so it is asked, by a thread that ends at once. 0, or a negative errno
 * where that cannot be found out. */
int cpus_usable(const cpu_set_t *set, cpu_set_t *ret);
/* What is to be said of a set of which only `usable` can be used; "" if that is all of it. */
void cpus_describe_loss(const cpu_set_t *set, const cpu_set_t *usable, char *text, size_t size);
