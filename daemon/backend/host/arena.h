/* SPDX-License-Identifier: Apache-2.0 */
/* Memories of the host backend: sealed memfds. A memfd that is shared with a member, made by the member or by
 * the daemon, is mapped once the member has touched every page of it. A memfd of the daemon alone is mapped
 * at once. Loop thread only, except arena_release(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/list.h"
#include "proto/memfd.h"

struct reaper;

struct arena_home {            /* state of all arenas of a backend */
        struct reaper *reaper; /* frees large arenas; NULL: arena_free() does */
        int guard;             /* see guard.h; or a negative errno */
        unsigned made;         /* number of arenas made so far */
};

struct arena {
        struct backend_memory memory;
        struct arena_home *home;
        struct arena *next;  /* in the reaper's list */
        struct list by_file; /* in one of host->files; alone if it need not be found there */
        int fd;
        /* Place of the mapping. Arenas that are read side by side have different places. */
        unsigned place;
        uint64_t offset, bytes; /* in the file */
        struct memfd_file file;
        uint64_t unchecked; /* bytes used since the file's pages were counted */
        bool unguarded;     /* a member may punch holes, and the guard does not show them */
        unsigned char *map; /* NULL until attached */
        void *companion;    /* see backend.h */
};

static inline struct arena *arena_of(const struct backend_memory *memory) {
        return container_of(memory, struct arena, memory);
}

/* Makes a SHARED or OWN memory, see backend.h. An OWN memory is attached without a member that touches it
 * first. 0 or a negative errno. */
int arena_new(struct arena_home *home, const struct memory_request *request, struct arena **ret);
struct arena *arena_free(struct arena *arena);
/* Frees the arena at once, on the calling thread. */
void arena_release(struct arena *arena);
/* Takes over an OFFERED or RETURNED memory: a part, or the whole, of a file that another process has made,
 * see proto/memfd.h. The memory is attached. Takes the fd if it returns 0; else INVALID (positive) with
 * *refusal, or a negative errno. */
int arena_adopt(struct arena_home *home, const struct memory_request *request, struct arena **ret,
                struct refusal *refusal);
/* See backend.h. */
int arena_attach(struct arena *arena, struct refusal *refusal);
int arena_check(struct arena *arena, uint64_t bytes, struct refusal *refusal);
/* Whether pages of the file are missing. Looks at nothing else. */
bool arena_has_holes(const struct arena *arena);
