/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host backend: a sealed memfd. One that is shared with a member, made by the member or the
 * daemon, is mapped once the member has touched every page of it; the daemon's own one at once. Loop thread
 * only, except arena_release(). */
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

struct arena_home {            /* of all arenas of a backend */
        struct reaper *reaper; /* gives large ones back; NULL: arena_free() does */
        int guard;             /* see guard.h; or a negative errno */
        unsigned made;         /* so far */
};

struct arena {
        struct backend_memory memory;
        struct arena_home *home;
        struct arena *next;  /* in the reaper's list */
        struct list by_file; /* host->files; alone: nobody looks for it */
        int fd;
        /* of the mapping; arenas that are read side by side have different ones */
        unsigned place;
        uint64_t offset, bytes; /* in the file */
        struct memfd_file file;
        uint64_t unchecked; /* bytes used since the file's pages were counted */
        bool unguarded;     /* a member may punch holes, and the guard does not show them */
        unsigned char *map; /* NULL until attached */
        void *beside;       /* see backend.h */
};

static inline struct arena *arena_of(const struct backend_memory *memory) {
        return container_of(memory, struct arena, memory);
}

/* SHARED or OWN, see backend.h: that is attached without anybody to touch it first. */
int arena_new(struct arena_home *home, const struct memory_request *request, struct arena **ret);
struct arena *arena_free(struct arena *arena);
/* Gives everything back, here and now. */
void arena_release(struct arena *arena);
/* OFFERED or RETURNED: part of a file that somebody else has made, see proto/memfd.h, or the whole of one;
 * attached. Takes the fd if it returns 0; else INVALID (positive) with *refusal, or a negative errno. */
int arena_adopt(struct arena_home *home, const struct memory_request *request, struct arena **ret,
                struct refusal *refusal);
/* See backend.h. */
int arena_attach(struct arena *arena, struct refusal *refusal);
int arena_check(struct arena *arena, uint64_t bytes, struct refusal *refusal);
/* Whether pages of the file are missing; looks at nothing else. */
bool arena_has_holes(const struct arena *arena);
