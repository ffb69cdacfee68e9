/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that may be missing. */
#pragma once

#include <unistd.h>

/* -1, for the field that held it. */
static inline int descriptor_close(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}
