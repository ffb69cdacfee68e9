/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target once for each file named on the command line, or found in a folder named there: the
 * corpus as an ordinary test, without libFuzzer. An empty corpus is a failure: nothing would have been
 * tested.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static int replay_file(const char *path, size_t size) {
        /* exactly so large: a sanitizer sees a read beyond the end */
        uint8_t *data = malloc(size ? size : 1);
        FILE *file = fopen(path, "rb");
        int result = -1;

        if (data && file && fread(data, 1, size, file) == size) {
                LLVMFuzzerTestOneInput(data, size);
                result = 1;
        } else {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
        }
        if (file)
                fclose(file);
        free(data);
        return result;
}

static int replay(const char *path);

/* Number of inputs replayed, or -1. */
static int replay_folder(const char *path) {
        DIR *folder = opendir(path);
        struct dirent *entry;
        int total = folder ? 0 : -1;

        while (total >= 0 && (entry = readdir(folder))) {
                char inside[4096];
                int one;

                if (entry->d_name[0] == '.')
                        continue;
                snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
                one = replay(inside);
                total = one < 0 ? -1 : total + one;
        }
        if (folder)
                closedir(folder);
        return total;
}

static int replay(const char *path) {
        struct stat info;

        if (stat(path, &info) < 0) {
                fprintf(stderr, "%s: %s\n", path, strerror(errno));
                return -1;
        }
        return S_ISDIR(info.st_mode) ? replay_folder(path) : replay_file(path, (size_t)info.st_size);
}

int main(int argc, char **argv) {
        int total = 0;

        for (int i = 1; i < argc; i++) {
                int count = replay(argv[i]);
                if (count < 0)
                        return EXIT_FAILURE;
                total += count;
        }
        printf("%d inputs\n", total);
        return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
