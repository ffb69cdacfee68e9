/* SPDX-License-Identifier: Apache-2.0 */
/* See ceiling.h. */
#include "core/ceiling.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/cgroup.h"

static void ceiling_look(void *data, const char *folder, bool unified) {
        uint64_t *least = data, limit;

        if (cgroup_memory_limit(folder, unified, &limit) && (*least == 0 || limit < *least))
                *least = limit;
}

uint64_t ceiling_read(const char *sysfs_root, const char *proc_cgroup) {
        uint64_t least = 0;

        cgroup_walk(sysfs_root, proc_cgroup, "memory", ceiling_look, &least);
        return least;
}

const char *ceiling_remedy(void) {
        if (access("/run/systemd/system", F_OK) == 0)
                return "set MemoryMax of the service to 512 MiB more than daemon_bytes (systemctl edit), or "
                       "lower daemon_bytes";
        return "let the control group, or the container, have 512 MiB more than daemon_bytes, or lower "
               "daemon_bytes";
}

bool ceiling_is_low(uint64_t daemon_bytes, char *text, size_t size) {
        uint64_t limit = ceiling_read("/sys/fs/cgroup", "/proc/self/cgroup");

        if (limit == 0 || daemon_bytes + CEILING_REST <= limit)
                return false;
        snprintf(text, size,
                 "the control group of this gradsyncd may have %" PRIu64
                 " MiB of memory, and daemon_bytes is %" PRIu64
                 " MiB: the kernel may kill it before it refuses anybody",
                 limit >> 20, daemon_bytes >> 20);
        return true;
}
