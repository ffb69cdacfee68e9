/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of files for tests that read control groups: set_up() makes its root, tear_down() removes all. */
#pragma once

#include "unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static int set_up(void **state) {
        strcpy(root, "/tmp/gs-tree-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static int tear_down(void **state) {
        return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes that file below the root, with the folders above it. */
static void put(const char *path, const char *text) {
        char full[256];

        snprintf(full, sizeof(full), "%s/%s", root, path);
        for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
                *slash = '\0';
                mkdir(full, 0755);
                *slash = '/';
        }
        FILE *file = fopen(full, "w");
        assert_non_null(file);
        fputs(text, file);
        assert_int_equal(fclose(file), 0);
}
