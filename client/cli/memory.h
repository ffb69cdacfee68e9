/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the calling process may still use: its cgroup's limit (v1 or v2, every ancestor) less what
 * is used, page cache that can be dropped not counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct memory_room {
        bool limited;   /* some cgroup has a limit */
        uint64_t limit; /* of the cgroup with the least room */
        uint64_t left;
};

/* `sysfs_root` is "/sys/fs/cgroup" and `proc_cgroup` "/proc/self/cgroup"; tests lay out trees of their own.
 * */
struct memory_room memory_cgroup_room(const char *sysfs_root, const char *proc_cgroup);

/* Value of a line such as "MemAvailable:  123 kB" in bytes; false if it is not there. */
bool memory_info(const char *path, const char *key, uint64_t *ret);
