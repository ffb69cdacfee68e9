/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound cleanup, `_cleanup_(freep)`, for the programs of both sides. Header only. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))
#define array_size(array) (sizeof(array) / sizeof((array)[0]))

static inline void freep(void *pointer) {
        free(*(void **)pointer);
}

/* Closes a descriptor if it is one; returns -1 to store back. */
static inline int fd_close(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}

static inline void closep(int *fd) {
        fd_close(*fd);
}
