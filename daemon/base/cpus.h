/* SPDX-License-Identifier: Apache-2.0 */
/* The CPUs that this process may use, by its affinity mask, and how many it can use in effect, by the CPU
 * limit of its cgroup (v1 or v2, every ancestor). */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns how many CPUs this process can use, at least 1. A limit of 1.5 CPUs counts as 2. */
unsigned cpus_available(void);

/* Returns the cgroup's limit alone: CPUs, rounded up, or 0 for none. Reads below `sysfs_root`
 * ("/sys/fs/cgroup") for the process whose cgroup file is `proc_cgroup` ("/proc/self/cgroup"). The paths are
 * parameters so that tests can lay out a tree. */
unsigned cpus_cgroup_limit(const char *sysfs_root, const char *proc_cgroup);

/* Parses "0-3,8" into a set. False if malformed, empty, or above CPU_SETSIZE. */
bool cpus_parse(const char *text, cpu_set_t *ret);
/* Writes a set in the form that cpus_parse() reads; "" for an empty set. CPUs that do not fit are left
 * out. */
void cpus_format(const cpu_set_t *set, char *text, size_t size);

/* Finds those CPUs of the set that a thread of this process can be bound to: online, and in its cpuset. The
 * kernel leaves the other CPUs out without an error, so a short-lived thread sets the mask and reads it back.
 * 0, or a negative errno if that fails. */
int cpus_usable(const cpu_set_t *set, cpu_set_t *ret);
/* Writes for people why CPUs of the set that are not in `usable` cannot be used; "" if all of them can. */
void cpus_describe_loss(const cpu_set_t *set, const cpu_set_t *usable, char *text, size_t size);
