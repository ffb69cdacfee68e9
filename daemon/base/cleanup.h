/* SPDX-License-Identifier: Apache-2.0 */
/* Explicit stealing where ownership moves, beside the scope-bound cleanup of both sides. Header only. */
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
