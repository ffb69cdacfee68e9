/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the limits of a process's control groups are: version 1 or 2, the group itself and every ancestor
 * that can be seen. What is asked of a group is the caller's business.
 */
#pragma once

#include <stdbool.h>

/* Of one group; `unified`: of version 2. */
typedef void (*cgroup_look_fn)(void *data, const char *folder, bool unified);

/* Looks at all groups of that process which have the controller, or may have it. `sysfs_root` is
 * "/sys/fs/cgroup" and `proc_cgroup` "/proc/self/cgroup"; tests lay out trees of their own. */
void cgroup_walk(const char *sysfs_root, const char *proc_cgroup, const char *controller, cgroup_look_fn look,
                 void *data);
