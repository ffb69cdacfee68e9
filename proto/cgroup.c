/* SPDX-License-Identifier: Apache-2.0 */
/* Reads /proc/PID/cgroup, a line for each hierarchy: "number:controllers:path". See cgroup.h. */
#include "proto/cgroup.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/cleanup.h"

/* "max", and the huge number by which version 1 says the same, are no limits. */
#define NO_LIMIT (UINT64_C(1) << 60)

static bool cgroup_is_folder(const char *path) {
        struct stat st;
        return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Walks from `mount`/`path` up to `mount`. In a container the path may lie outside of the mounted tree: then
 * only the root of the mount, which is the container's own group, can be read. */
static void cgroup_walk_up(const char *mount, const char *path, bool unified, cgroup_look_fn look,
                           void *data) {
        char folder[PATH_MAX];
        size_t root = strlen(mount);
        int length = snprintf(folder, sizeof(folder), "%s%s", mount, path);

        if (length < 0 || (size_t)length >= sizeof(folder) || strstr(path, "/..") ||
            !cgroup_is_folder(folder))
                snprintf(folder, sizeof(folder), "%s", mount);
        look(data, folder, unified);
        while (strlen(folder) > root) {
                *strrchr(folder, '/') = '\0';
                look(data, folder, unified);
        }
}

static bool cgroup_lists(const char *controllers, const char *name) {
        size_t length = strlen(name);

        for (const char *at = controllers; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
                        return true;
        return false;
}

/* Finds the mount of version 2, also in a hybrid tree; or of a hierarchy of version 1, under the names of all
 * its controllers or of one. */
static bool cgroup_find_mount(char mount[PATH_MAX], const char *sysfs_root, const char *first,
                              const char *second) {
        snprintf(mount, PATH_MAX, "%s/%s", sysfs_root, first);
        if (!cgroup_is_folder(mount))
                snprintf(mount, PATH_MAX, "%s%s", sysfs_root, second);
        return cgroup_is_folder(mount);
}

void cgroup_walk(const char *sysfs_root, const char *proc_cgroup, const char *controller, cgroup_look_fn look,
                 void *data) {
        _cleanup_(freep) char *line = NULL;
        char mount[PATH_MAX], alone[64];
        size_t size = 0;
        FILE *file = fopen(proc_cgroup, "re");

        snprintf(alone, sizeof(alone), "/%s", controller);
        while (file && getline(&line, &size, file) > 0) {
                line[strcspn(line, "\n")] = '\0';
                char *path = line, *number = strsep(&path, ":"), *controllers = strsep(&path, ":");
                bool unified = controllers && !*controllers && strcmp(number, "0") == 0;
                if (!path || *path != '/' || (!unified && !cgroup_lists(controllers, controller)))
                        continue;
                if (cgroup_find_mount(mount, sysfs_root, unified ? "unified" : controllers,
                                      unified ? "" : alone))
                        cgroup_walk_up(mount, path[1] ? path : "", unified, look, data);
        }
        if (file)
                fclose(file);
}

bool cgroup_read(const char *folder, const char *name, uint64_t *ret) {
        char path[PATH_MAX + 64];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        FILE *file = fopen(path, "re");
        if (!file)
                return false;
        bool found = fscanf(file, "%" SCNu64, ret) == 1;
        fclose(file);
        return found;
}

bool cgroup_memory_limit(const char *folder, bool unified, uint64_t *ret) {
        return cgroup_read(folder, unified ? "memory.max" : "memory.limit_in_bytes", ret) && *ret < NO_LIMIT;
}
