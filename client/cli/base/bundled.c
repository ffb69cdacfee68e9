// SPDX-License-Identifier: Apache-2.0
/* Where the files beside this program are: see bundled.h. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/base/bundled.h"
#include "client/cli/base/format.h"
#include "proto/cleanup.h"

char *bundled_path(const char *pattern) {
        char self[PATH_MAX] = "";
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        char *slash = n > 0 ? strrchr(self, '/') : NULL;

        if (!slash)
                return NULL;
        *slash = '\0';
        return format_new(pattern, self);
}

char *bundled_executable(const char *const *patterns, size_t n) {
        for (size_t i = 0; i < n; i++) {
                char *path = bundled_path(patterns[i]);
                if (path && access(path, X_OK) == 0)
                        return path;
                free(path);
        }
        return NULL;
}

char *bundled_daemon(void) {
        struct advice advice;

        bundled_advice(&advice);
        return strdup(*advice.daemon ? advice.daemon : "gradsyncd");
}

char *bundled_example(const char *name) {
        static const char *const folder[] = { "%s/" GRADSYNC_LIBEXEC, "%s/../examples" };
        char *found = NULL;

        if (!*name || strchr(name, '/'))
                return NULL;
        for (size_t i = 0; i < array_size(folder) && !found; i++) {
                _cleanup_(freep) char *at = bundled_path(folder[i]);
                char *path = at ? format_new("%s/%s", at, name) : NULL;
                struct stat file;
                if (path && stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0)
                        found = path;
                else
                        free(path);
        }
        return found;
}

void bundled_advice(struct advice *ret) {
        _cleanup_(freep) char *folder = bundled_path("%s");

        advice_look(ret, "", folder);
}
