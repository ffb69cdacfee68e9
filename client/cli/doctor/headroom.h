/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory the calling process may still use: the limit of its cgroup (v1 or v2, every ancestor) less
 * what is used. Page cache that can be dropped does not count as used.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct headroom {
        bool limited;   /* some cgroup has a limit */
        uint64_t limit; /* of the cgroup with the least room */
        uint64_t left;
};

/* `sysfs_root` is "/sys/fs/cgroup" and `proc_cgroup` "/proc/self/cgroup"; tests lay out trees of their own.
 * */
struct headroom headroom_cgroup(const char *sysfs_root, const char *proc_cgroup);

/* Value of a line such as "MemAvailable:  123 kB" in bytes; false if it is not there. */
bool headroom_meminfo(const char *path, const char *key, uint64_t *ret);
