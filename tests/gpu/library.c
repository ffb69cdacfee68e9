/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where Python packages live: for each folder of the PATH that has a python3, ../lib/python3.N/site-packages,
 * which is right for virtual environments and installed interpreters alike; dist-packages for Debian's.
 */
#include "library.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void library_add(struct libraries *found, const char *path) {
        char real[PATH_MAX];

        if (found->n == LIBRARIES || strlen(path) >= LIBRARY_PATH)
                return;
        if (strchr(path, '/') != NULL && realpath(path, real) != NULL && strlen(real) < LIBRARY_PATH)
                path = real;
        for (unsigned i = 0; i < found->n; i++)
                if (strcmp(found->path[i], path) == 0)
                        return;
        snprintf(found->path[found->n++], LIBRARY_PATH, "%s", path);
}

static void library_add_matches(struct libraries *found, const char *root, const char *prefix,
                                const char *inside) {
        static const char *const packages[] = { "site-packages", "dist-packages" };
        char pattern[PATH_MAX];
        glob_t matches;

        for (unsigned i = 0; i < sizeof packages / sizeof *packages; i++) {
                if ((size_t)snprintf(pattern, sizeof pattern, "%s%s/python3*/%s/%s", root, prefix,
                                     packages[i], inside) >= sizeof pattern)
                        continue;
                if (glob(pattern, 0, NULL, &matches) != 0)
                        continue;
                for (size_t j = 0; j < matches.gl_pathc; j++)
                        library_add(found, matches.gl_pathv[j]);
                globfree(&matches);
        }
}

void library_in_python(struct libraries *found, const char *root, const char *inside) {
        static const char *const system[] = { "/usr/local/lib", "/usr/lib", "/opt/*/lib", "/opt/*/.venv/lib",
                                              "/opt/*/venv/lib" };
        const char *path = getenv("PATH");
        char lib[PATH_MAX], python[PATH_MAX];

        while (path != NULL && *path != '\0') {
                int length = (int)strcspn(path, ":");

                snprintf(python, sizeof python, "%.*s/python3", length, path);
                if (length > 0 && access(python, X_OK) == 0) {
                        snprintf(lib, sizeof lib, "%.*s/../lib", length, path);
                        library_add_matches(found, "", lib, inside);
                }
                path += length;
                path += *path == ':';
        }
        for (unsigned i = 0; i < sizeof system / sizeof *system; i++)
                library_add_matches(found, root, system[i], inside);
}

void library_nccl(struct libraries *found, const struct options *options) {
        for (unsigned i = 0; i < options->n_nccl; i++)
                library_add(found, options->nccl[i]);
        library_add(found, "libnccl.so.2");
        library_in_python(found, options->root, "nvidia/nccl/lib/libnccl.so.2");
        library_in_python(found, options->root, "nvidia/cu1*/lib/libnccl.so.2");
        library_in_python(found, options->root, "torch/lib/libnccl.so.2");
}
