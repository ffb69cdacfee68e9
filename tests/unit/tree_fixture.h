/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own: tree_make() makes its root, tree_remove() removes all. */
#pragma once

#include "unit.h"

#include <ftw.h>

#define TREE_PATH 192u

static char root[64];

static inline int tree_make(void **state) {
        strcpy(root, "/tmp/gs-tree-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static inline int tree_remove(void **state) {
        return nftw(root, tree_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of what lies there below the root. It is good until eight more are asked for. */
static inline char *in_tree(const char *path) {
        static char ring[8][TREE_PATH];
        static unsigned asked;
        char *full = ring[asked++ % 8];

        assert_in_range(snprintf(full, TREE_PATH, "%s/%s", root, path), 1, TREE_PATH - 1);
        return full;
}

/* Writes that file below the root, with the folders above it. */
static inline void put(const char *path, const char *text) {
        char *full = in_tree(path);

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

#define TREE_TEST(name) TEST_WITH(name, tree_make, tree_remove)
