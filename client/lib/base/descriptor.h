/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that may be missing. */
#pragma once

#include <unistd.h>

/* Returns -1, for the field that held the descriptor. */
static inline int descriptor_close(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}
