/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the control groups that limit a process: version 1 or 2, the group itself and every visible ancestor.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Called for each group; `unified`: the group is of version 2. */
typedef void (*cgroup_look_fn)(void *data, const char *folder, bool unified);

/* Looks at all groups of that process which have the controller, or may have it. `sysfs_root` is
 * "/sys/fs/cgroup" and `proc_cgroup` "/proc/self/cgroup"; tests lay out trees of their own. */
void cgroup_walk(const char *sysfs_root, const char *proc_cgroup, const char *controller, cgroup_look_fn look,
                 void *data);
/* Reads a file of a group that holds one number. False if there is none. */
bool cgroup_read(const char *folder, const char *name, uint64_t *ret);
/* Reads the group's limit of memory in bytes. False if it has none. */
bool cgroup_memory_limit(const char *folder, bool unified, uint64_t *ret);
