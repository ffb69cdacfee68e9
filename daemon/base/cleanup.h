/* SPDX-License-Identifier: Apache-2.0 */
/* Scope-bound cleanup: `_cleanup_(freep)`, and explicit stealing where ownership moves. Header only. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

static inline void freep(void *pointer) {
        free(*(void **)pointer);
}

static inline void closep(int *fd) {
        if (*fd >= 0)
                close(*fd);
}

/* Closes an fd if it is one; returns -1 to store back. */
static inline int fd_close(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}

static inline int fd_steal(int *fd) {
        int stolen = *fd;
        *fd = -1;
        return stolen;
}

#define pointer_steal(pointer)                                                                               \
        ({                                                                                                   \
                __typeof__(pointer) stolen_ = (pointer);                                                     \
                (pointer) = NULL;                                                                            \
                stolen_;                                                                                     \
        })
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define array_size(array) (sizeof(array) / sizeof((array)[0]))
