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

#include "proto/nccl.h"

void library_add(struct libraries *found, const char *path) {
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

static void library_add_matches(struct libraries *found, const char *lib) {
        static const char *const packages[] = { "site-packages", "dist-packages" };
        static const char *const inside[] = { "nvidia/nccl/lib", "nvidia/cu1*/lib", "torch/lib" };
        char pattern[PATH_MAX];
        glob_t matches;

        for (unsigned i = 0; i < 6; i++) {
                if ((size_t)snprintf(pattern, sizeof pattern, "%s/python3*/%s/%s/" NCCL_LIBRARY, lib,
                                     packages[i % 2], inside[i / 2]) >= sizeof pattern ||
                    glob(pattern, 0, NULL, &matches) != 0)
                        continue;
                for (size_t j = 0; j < matches.gl_pathc; j++)
                        library_add(found, matches.gl_pathv[j]);
                globfree(&matches);
        }
}

void library_nccl(struct libraries *found) {
        static const char *const system[] = { "/usr/local/lib", "/usr/lib", "/opt/*/lib", "/opt/*/.venv/lib",
                                              "/opt/*/venv/lib" };
        const char *path = getenv("PATH");
        char lib[PATH_MAX], python[PATH_MAX];

        library_add(found, NCCL_LIBRARY);
        while (path != NULL && *path != '\0') {
                int length = (int)strcspn(path, ":");

                snprintf(python, sizeof python, "%.*s/python3", length, path);
                snprintf(lib, sizeof lib, "%.*s/../lib", length, path);
                if (length > 0 && access(python, X_OK) == 0)
                        library_add_matches(found, lib);
                path += length;
                path += *path == ':';
        }
        for (unsigned i = 0; i < sizeof system / sizeof *system; i++)
                library_add_matches(found, system[i]);
}
