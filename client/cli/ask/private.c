// SPDX-License-Identifier: Apache-2.0
/* Private daemons found in the file system: see private.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "client/cli/ask/private.h"
#include "client/cli/base/cli.h"

const char *private_parent(void) {
        const char *parent = environ_get("TMPDIR");

        return parent ? parent : "/tmp";
}

static bool private_is_named_like_ours(const char *name) {
        char prefix[32];
        int length = snprintf(prefix, sizeof prefix, "gradsync-%u.", (unsigned)geteuid());

        return strncmp(name, prefix, (size_t)length) == 0 && strlen(name) == (size_t)length + 6;
}

/* Another process can have the pid by now: the pid counts only if its process was started for this very
 * directory. */
static bool private_serves(pid_t pid, const char *directory) {
        char path[64], line[8192];
        size_t length = 0;

        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
        FILE *file = fopen(path, "re");
        if (!file)
                return false;
        length = fread(line, 1, sizeof line - 1, file);
        fclose(file);
        return length > 0 && memmem(line, length, directory, strlen(directory)) != NULL;
}

static void private_read_pid_file(struct private_place *place) {
        char path[PATH_MAX], text[32] = "";

        snprintf(path, sizeof path, "%s/" PRIVATE_PID, place->directory);
        _cleanup_(closep) int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return;
        place->owned = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        ssize_t n = read(fd, text, sizeof text - 1);
        long pid = n > 0 ? strtol(text, NULL, 10) : 0;
        if (pid > 0 && pid <= INT_MAX && private_serves((pid_t)pid, place->directory))
                place->daemon = (pid_t)pid;
}

static int private_append(struct private_list *list, const char *parent, const char *name) {
        struct private_place place = { 0 };
        struct private_place *grown = realloc(list->place, (list->n + 1) * sizeof *grown);

        if (!grown)
                return -ENOMEM;
        list->place = grown;
        if (asprintf(&place.directory, "%s/%s", parent, name) < 0)
                return -ENOMEM;
        if (asprintf(&place.socket, "%s/" PRIVATE_SOCKET, place.directory) < 0) {
                free(place.directory);
                return -ENOMEM;
        }
        private_read_pid_file(&place);
        list->place[list->n++] = place;
        return 0;
}

static int private_by_name(const void *a, const void *b) {
        const struct private_place *left = a, *right = b;

        return strcmp(left->directory, right->directory);
}

int private_scan(struct private_list *ret) {
        const char *parent = private_parent();
        const struct dirent *entry;
        int r = 0;

        *ret = (struct private_list){ 0 };
        DIR *directory = opendir(parent);
        if (!directory)
                return errno == ENOENT ? 0 : -errno;
        while (r == 0 && (entry = readdir(directory))) {
                struct stat info;
                if (!private_is_named_like_ours(entry->d_name))
                        continue;
                if (fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISDIR(info.st_mode) && info.st_uid == geteuid())
                        r = private_append(ret, parent, entry->d_name);
        }
        closedir(directory);
        if (r < 0)
                private_list_deinit(ret);
        else if (ret->n > 1)
                qsort(ret->place, ret->n, sizeof *ret->place, private_by_name);
        return r;
}

void private_list_deinit(struct private_list *list) {
        for (size_t i = 0; i < list->n; i++) {
                free(list->place[i].directory);
                free(list->place[i].socket);
        }
        free(list->place);
        *list = (struct private_list){ 0 };
}
