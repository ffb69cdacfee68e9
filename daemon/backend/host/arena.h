/* SPDX-License-Identifier: Apache-2.0 */
/* Memory shared with one member: a sealed memfd, made by the member or the daemon, mapped once the member has
 * touched every page of it. Loop thread only, except arena_release(). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/memfd.h"

struct reaper;

struct backend_arena {
        struct reaper *reaper;      /* gives a large one back; NULL: arena_free() does */
        struct backend_arena *next; /* in the reaper's list */
        int fd;
        /* of the mapping; arenas that are read side by side have different ones */
        unsigned place;
        uint64_t offset, bytes; /* in the file */
        struct memfd_file file;
        uint64_t unchecked; /* bytes used since the file's pages were counted */
        unsigned char *map; /* NULL until attached */
};

int arena_new(struct reaper *reaper, unsigned place, uint64_t bytes, struct backend_arena **ret);
struct backend_arena *arena_free(struct backend_arena *arena);
/* Gives everything back, here and now. */
void arena_release(struct backend_arena *arena);
/* See arena_adopt, arena_attach and arena_check of backend.h. */
int arena_adopt(struct reaper *reaper, unsigned place, int fd, uint64_t offset, uint64_t bytes,
                struct memfd_file *ret_file, struct backend_arena **ret, struct refusal *refusal);
int arena_attach(struct backend_arena *arena, struct refusal *refusal);
int arena_check(struct backend_arena *arena, uint64_t bytes, struct refusal *refusal);
void arena_read(const struct backend_arena *arena, uint64_t offset, void *to, size_t size);
