// SPDX-License-Identifier: Apache-2.0
/* Memory that is left: see headroom.h. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/doctor/headroom.h"
#include "proto/cgroup.h"

struct files {
        const char *used, *droppable;
};

static const struct files v1 = { "memory.usage_in_bytes", "total_inactive_file" };
static const struct files v2 = { "memory.current", "inactive_file" };

/* Value of "KEY VALUE" in memory.stat; 0 if it is not there. */
static uint64_t headroom_read_stat(const char *directory, const char *key) {
        char path[PATH_MAX + 64], name[64];
        uint64_t value, found = 0;

        snprintf(path, sizeof path, "%s/memory.stat", directory);
        FILE *file = fopen(path, "re");
        while (file && fscanf(file, "%63s %" SCNu64, name, &value) == 2)
                if (strcmp(name, key) == 0)
                        found = value;
        if (file)
                fclose(file);
        return found;
}

static void headroom_consider(void *data, const char *directory, bool unified) {
        const struct files *files = unified ? &v2 : &v1;
        struct headroom *room = data;
        uint64_t limit, used;

        if (!cgroup_memory_limit(directory, unified, &limit) || !cgroup_read(directory, files->used, &used))
                return;
        uint64_t droppable = headroom_read_stat(directory, files->droppable);
        used -= droppable < used ? droppable : used;
        uint64_t left = limit > used ? limit - used : 0;
        if (!room->limited || left < room->left)
                *room = (struct headroom){ true, limit, left };
}

struct headroom headroom_cgroup(const char *sysfs_root, const char *proc_cgroup) {
        struct headroom room = { 0 };

        cgroup_walk(sysfs_root, proc_cgroup, "memory", headroom_consider, &room);
        return room;
}

bool headroom_meminfo(const char *path, const char *key, uint64_t *ret) {
        char line[256];
        FILE *file = fopen(path, "re");
        bool found = false;
        size_t length = strlen(key);

        while (file && !found && fgets(line, sizeof line, file))
                if (strncmp(line, key, length) == 0 && line[length] == ':' &&
                    sscanf(line + length + 1, "%" SCNu64, ret) == 1)
                        found = true;
        if (file)
                fclose(file);
        if (found)
                *ret *= 1024;
        return found;
}
