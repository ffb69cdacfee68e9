/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors of this process, and memory that a member may offer. */
#pragma once

#include "unit.h"

#include <dirent.h>

/* The count includes that of the directory which is read. */
static inline int count_fds(void) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;

        if (dir == NULL)
                abort(); /* not an assertion: a child that was forked counts too */
        while (readdir(dir) != NULL)
                n++;
        closedir(dir);
        return n;
}

static inline int memfd_with_seals(uint64_t bytes, int seals) {
        int fd = memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        if (seals != 0)
                assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
        return fd;
}

/* Its size is sealed. */
static inline int memfd_sealed(uint64_t bytes) {
        return memfd_with_seals(bytes, F_SEAL_SHRINK | F_SEAL_GROW);
}
