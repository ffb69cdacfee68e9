/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas. A memory cgroup charges a page to the process that touches it first, and that must never be the
 * daemon. So an arena is created without a page, and mapped only when the kernel's count of its pages shows
 * that the member has touched all. The seals keep the file's size, so that no access of the daemon can ever
 * meet its end. A member can still give pages back later, so they are counted again and again, and shared
 * mappings are guarded.
 */
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/fill.h"
#include "base/cleanup.h"
#include "guard.h"
#include "proto/frame.h"
#include "proto/gradsync.pb-c.h"
#include "reaper.h"

#define SMALL_ARENA (1u << 20)            /* bytes; to free so much takes some ten microseconds */
#define PLACE_ALIGN (UINT64_C(256) << 20) /* bytes */
#define PLACES 64u /* pages after a multiple of that, at which a large arena may start */

void arena_release(struct arena *arena) {
        if (arena->map)
                munmap(arena->map, arena->bytes);
        fd_close(arena->fd);
        free(arena->companion);
        free(arena);
}

struct arena *arena_free(struct arena *arena) {
        if (!arena)
                return NULL;
        list_remove(&arena->by_file);
        if (arena->home->reaper && arena->file.size > SMALL_ARENA)
                reaper_take(arena->home->reaper, arena);
        else
                arena_release(arena);
        return NULL;
}

static void *arena_map_anywhere(const struct arena *arena) {
        return mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, (off_t)arena->offset);
}

/*
 * Zen processors look a line up in their first-level cache by a hash of bits 12 to 27 of its virtual address,
 * and lines with equal hashes evict each other (Lipp et al., "Take A Way: Exploring the Security Implications
 * of AMD's Cache Way Predictors", 2020). Arenas of 128 MiB and a page, mapped one after the other, are such a
 * case: read side by side they took twice the time. So all large arenas start near a multiple of 256 MiB,
 * each another number of pages after it. The rest of the range that is reserved for that is given back at
 * once. If so much cannot be reserved, the arena is mapped anywhere.
 */
static void *arena_map_apart(const struct arena *arena) {
        size_t shift = arena->place * (size_t)ARENA_PAGE,
               span = arena->bytes + PLACE_ALIGN + PLACES * (size_t)ARENA_PAGE;
        unsigned char *reserved =
                mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                return arena_map_anywhere(arena);
        unsigned char *start =
                reserved + (PLACE_ALIGN - (uintptr_t)reserved % PLACE_ALIGN) % PLACE_ALIGN + shift;
        unsigned char *end = start + arena->bytes;
        void *map = mmap(start, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena->fd,
                         (off_t)arena->offset);
        if (map == MAP_FAILED) {
                munmap(reserved, span);
                return arena_map_anywhere(arena);
        }
        if (start > reserved)
                munmap(reserved, (size_t)(start - reserved));
        munmap(end, (size_t)(reserved + span - end));
        return map;
}

static int arena_map(struct arena *arena) {
        void *map = arena->bytes > SMALL_ARENA ? arena_map_apart(arena) : arena_map_anywhere(arena);
        if (map == MAP_FAILED)
                return -errno;
        madvise(map, arena->bytes, MADV_DONTDUMP); /* a core of the daemon holds no member's data */
        arena->map = map;
        return 0;
}

/* Maps memory into which members can punch holes. Without the guard tasks look for the holes. */
static int arena_map_shared(struct arena *arena) {
        int r = arena_map(arena);

        if (r == 0)
                arena->unguarded = guard_add(arena->home->guard, arena->map, arena->bytes) < 0;
        return r;
}

static int arena_map_own(struct arena *arena, const struct memory_request *request) {
        int r = arena_map(arena);

        for (unsigned i = 0; r == 0 && i < request->n_fills; i++)
                fill_repeat((unsigned char *)arena->map + request->fills[i].offset, request->fills[i].bytes,
                            request->fills[i].bits, request->fills[i].size);
        if (r == 0 && request->companion > 0) {
                arena->companion = calloc(1, request->companion);
                r = arena->companion != NULL ? 0 : -ENOMEM;
        }
        return r;
}

static int arena_make(struct arena *arena, const struct memory_request *request) {
        struct stat info;
        arena->bytes = request->bytes;
        arena->fd = memfd_new(MEMFD_ARENA, request->bytes);
        if (arena->fd < 0)
                return arena->fd;
        if (fstat(arena->fd, &info) < 0)
                return -errno;
        arena->file = (struct memfd_file){ info.st_dev, info.st_ino, .size = request->bytes };
        return request->kind == MEMORY_OWN ? arena_map_own(arena, request) : 0;
}

int arena_new(struct arena_home *home, const struct memory_request *request, struct arena **ret) {
        if (request->bytes == 0 || request->bytes % ARENA_PAGE != 0 || request->bytes > LIMIT_ARENA)
                return -EINVAL;
        struct arena *arena = calloc(1, sizeof *arena);
        if (!arena)
                return -ENOMEM;
        arena->home = home;
        list_init(&arena->by_file);
        arena->place = home->made++ % PLACES;
        int r = arena_make(arena, request);
        if (r < 0)
                arena_release(arena);
        else
                *ret = arena;
        return r;
}

int arena_attach(struct arena *arena, struct refusal *refusal) {
        char text[512];
        int r = memfd_check_present(arena->fd, &arena->file, text, sizeof text);
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        return r < 0 || arena->map ? r : arena_map_shared(arena);
}

int arena_adopt(struct arena_home *home, const struct memory_request *request, struct arena **ret,
                struct refusal *refusal) {
        _cleanup_(freep) struct arena *arena = NULL;
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        char text[512];
        if (request->n_fds != 1)
                return -EINVAL;
        if (request->kind == MEMORY_OFFERED && memfd_is_ours(request->fds[0]))
                return refuse(refusal, WIRE__CODE__INVALID,
                              "it is an arena, or staging memory, that a gradsyncd has made, and has its use "
                              "already; make one with memfd_create(2)");
        arena = calloc(1, sizeof *arena);
        if (!arena)
                return -ENOMEM;
        *arena = (struct arena){
                .home = home, .place = home->made++ % PLACES, .fd = request->fds[0], .offset = request->offset
        };
        list_init(&arena->by_file);
        arena->bytes = (request->bytes + page - 1) / page * page;
        int r = memfd_check(arena->fd, request->offset, request->bytes, &arena->file, text, sizeof text);
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        if (r == 0 && request->kind == MEMORY_RETURNED && arena->file.size != request->bytes)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "the memory has %" PRIu64 " bytes instead of %" PRIu64, arena->file.size,
                              request->bytes);
        if (r == 0)
                r = arena_attach(arena, refusal);
        if (r != 0)
                return r;
        request->fds[0] = -1;
        *ret = pointer_steal(arena);
        return 0;
}

int arena_check(struct arena *arena, uint64_t bytes, struct refusal *refusal) {
        char text[512];
        arena->unchecked += bytes;
        if (arena->unchecked < MEMORY_UNCHECKED)
                return 0;
        arena->unchecked = 0;
        int r = memfd_check_kept(arena->fd, &arena->file, text, sizeof text);
        return r > 0 ? refuse(refusal, (uint32_t)r, "%s", text) : r;
}

bool arena_has_holes(const struct arena *arena) {
        char text[256];
        return memfd_check_kept(arena->fd, &arena->file, text, sizeof text) > 0;
}
