/* SPDX-License-Identifier: Apache-2.0 */
/* Macros that move ownership out of a variable, for use with the scope-bound cleanup of proto/cleanup.h.
 * Header only. */
#pragma once

#include <stddef.h>

#include "proto/cleanup.h"

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
