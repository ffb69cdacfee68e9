/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the control groups that limit a process: version 1 or 2, the group itself and every visible ancestor.
 * The caller reads the limits.
 */
#pragma once

#include <stdbool.h>

/* Called for each group; `unified`: the group is of version 2. */
typedef void (*cgroup_look_fn)(void *data, const char *folder, bool unified);

/* Looks at all groups of that process which have the controller, or may have it. `sysfs_root` is
 * "/sys/fs/cgroup" and `proc_cgroup` "/proc/self/cgroup"; tests lay out trees of their own. */
void cgroup_walk(const char *sysfs_root, const char *proc_cgroup, const char *controller, cgroup_look_fn look,
                 void *data);
