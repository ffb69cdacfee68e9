// SPDX-License-Identifier: Apache-2.0
/* Memory that is left: see headroom.h. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/doctor/headroom.h"

/* "max" and the huge number by which cgroup v1 says the same are no limits. */
#define UNLIMITED (UINT64_C(1) << 60)

struct files {
        const char *limit, *used, *droppable;
};

static const struct files v1 = { "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file" };
static const struct files v2 = { "memory.max", "memory.current", "inactive_file" };

static bool headroom_read_number(const char *directory, const char *name, uint64_t *ret) {
        char path[PATH_MAX + 64];

        snprintf(path, sizeof path, "%s/%s", directory, name);
        FILE *file = fopen(path, "re");
        if (!file)
                return false;
        bool found = fscanf(file, "%" SCNu64, ret) == 1;
        fclose(file);
        return found;
}

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

static void headroom_consider(struct headroom *room, const char *directory, const struct files *files) {
        uint64_t limit, used, droppable, left;

        if (!headroom_read_number(directory, files->limit, &limit) || limit >= UNLIMITED ||
            !headroom_read_number(directory, files->used, &used))
                return;
        droppable = headroom_read_stat(directory, files->droppable);
        used -= droppable < used ? droppable : used;
        left = limit > used ? limit - used : 0;
        if (!room->limited || left < room->left)
                *room = (struct headroom){ true, limit, left };
}

/* The cgroup itself, then each of its ancestors up to the mount. */
static void headroom_walk(struct headroom *room, const char *mount, const char *cgroup,
                          const struct files *files) {
        char path[PATH_MAX];

        if (snprintf(path, sizeof path, "%s%s", mount, cgroup) >= (int)sizeof path)
                return;
        for (;;) {
                headroom_consider(room, path, files);
                char *slash = strrchr(path, '/');
                if (!slash || (size_t)(slash - path) < strlen(mount))
                        return;
                *slash = '\0';
        }
}

/* Whether a comma-separated list has the entry. */
static bool headroom_lists(const char *list, const char *entry) {
        size_t length = strlen(entry);

        for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
                if (strncmp(p, entry, length) == 0 && (p[length] == ',' || p[length] == '\0'))
                        return true;
        return false;
}

struct headroom headroom_cgroup(const char *sysfs_root, const char *proc_cgroup) {
        struct headroom room = { 0 };
        char line[PATH_MAX + 256], mount[PATH_MAX];
        FILE *file = fopen(proc_cgroup, "re");

        while (file && fgets(line, sizeof line, file)) {
                char *rest = line;
                line[strcspn(line, "\n")] = '\0';
                strsep(&rest, ":");
                const char *controllers = strsep(&rest, ":");
                if (!controllers || !rest)
                        continue;
                if (!*controllers) {
                        headroom_walk(&room, sysfs_root, rest, &v2);
                } else if (headroom_lists(controllers, "memory")) {
                        snprintf(mount, sizeof mount, "%s/memory", sysfs_root);
                        headroom_walk(&room, mount, rest, &v1);
                }
        }
        if (file)
                fclose(file);
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
