/* SPDX-License-Identifier: Apache-2.0 */
#include "kinds.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int fd_of_kind(const char *kind, uint64_t size, uint64_t fill, int seals) {
        int fd;

        if (strcmp(kind, "file") == 0)
                return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        fd = memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd >= 0 && ftruncate(fd, (off_t)size) == 0 &&
            (fill == 0 || posix_fallocate(fd, 0, (off_t)fill) == 0))
                fcntl(fd, F_ADD_SEALS, seals);
        return fd;
}
