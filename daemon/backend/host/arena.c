/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas. A memory cgroup charges a page to the process that touches it first, and that must never be the
 * daemon: so an arena is created without a page, and mapped only when the kernel's count of its pages shows
 * that the member has touched all. The seals keep the file's size, so that no access of the daemon can ever
 * meet its end. Nothing keeps a member from giving pages back later, so they are counted again and again.
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
#include "base/cleanup.h"
#include "proto/frame.h"
#include "proto/gradsync.pb-c.h"
#include "reaper.h"

#define SMALL_ARENA (1u << 20)            /* bytes: giving it back takes some ten microseconds */
#define PLACE_ALIGN (UINT64_C(256) << 20) /* bytes */
#define PLACES 64u /* pages after a multiple of that, at which a large arena may start */

int arena_new(struct reaper *reaper, unsigned place, uint64_t bytes, struct arena **ret) {
        _cleanup_(freep) struct arena *arena = NULL;
        struct stat info;
        if (bytes == 0 || bytes % ARENA_PAGE != 0 || bytes > LIMIT_ARENA)
                return -EINVAL;
        arena = calloc(1, sizeof *arena);
        if (!arena)
                return -ENOMEM;
        arena->reaper = reaper;
        arena->place = place % PLACES;
        arena->bytes = bytes;
        arena->fd = memfd_new(MEMFD_ARENA, bytes);
        if (arena->fd < 0)
                return arena->fd;
        if (fstat(arena->fd, &info) < 0) {
                int r = -errno;
                fd_close(arena->fd);
                return r;
        }
        arena->file = (struct memfd_file){ .device = info.st_dev, .inode = info.st_ino, .size = bytes };
        *ret = pointer_steal(arena);
        return 0;
}

void arena_release(struct arena *arena) {
        if (arena->map)
                munmap(arena->map, arena->bytes);
        fd_close(arena->fd);
        free(arena);
}

struct arena *arena_free(struct arena *arena) {
        if (!arena)
                return NULL;
        if (arena->reaper && arena->file.size > SMALL_ARENA)
                reaper_take(arena->reaper, arena);
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
 * each some other pages after it. The rest of what is reserved for that is given back at once; where so much
 * cannot be reserved, any place will do.
 */
static void *arena_map_apart(const struct arena *arena) {
        size_t shift = arena->place * (size_t)ARENA_PAGE,
               span = arena->bytes + PLACE_ALIGN + PLACES * (size_t)ARENA_PAGE;
        unsigned char *reserved =
                mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        unsigned char *start, *end;
        void *map;
        if (reserved == MAP_FAILED)
                return arena_map_anywhere(arena);
        start = reserved + (PLACE_ALIGN - (uintptr_t)reserved % PLACE_ALIGN) % PLACE_ALIGN + shift;
        end = start + arena->bytes;
        map = mmap(start, arena->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, arena->fd,
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

int arena_own(struct reaper *reaper, unsigned place, uint64_t bytes, struct arena **ret) {
        struct arena *arena = NULL;
        int r = arena_new(reaper, place, bytes, &arena);
        if (r < 0)
                return r;
        r = arena_map(arena);
        if (r < 0) {
                arena_release(arena);
                return r;
        }
        *ret = arena;
        return 0;
}

int arena_attach(struct arena *arena, struct refusal *refusal) {
        char text[512];
        int r = memfd_check_present(arena->fd, &arena->file, text, sizeof text);
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        return r < 0 || arena->map ? r : arena_map(arena);
}

int arena_adopt(struct reaper *reaper, unsigned place, int fd, uint64_t offset, uint64_t bytes,
                struct arena **ret, struct refusal *refusal) {
        _cleanup_(freep) struct arena *arena = calloc(1, sizeof *arena);
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        char text[512];
        int r;
        if (!arena)
                return -ENOMEM;
        *arena = (struct arena){ .reaper = reaper, .place = place % PLACES, .fd = fd, .offset = offset };
        arena->bytes = (bytes + page - 1) / page * page;
        r = memfd_check(fd, offset, bytes, &arena->file, text, sizeof text);
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        if (r == 0)
                r = arena_attach(arena, refusal);
        if (r == 0)
                *ret = pointer_steal(arena);
        return r;
}

int arena_return(struct reaper *reaper, unsigned place, int fd, uint64_t bytes, struct arena **ret,
                 struct refusal *refusal) {
        struct memfd_file file;
        char text[512];
        int r = memfd_check(fd, 0, bytes, &file, text, sizeof text);
        if (r > 0)
                return refuse(refusal, (uint32_t)r, "%s", text);
        if (r == 0 && file.size != bytes)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "the memory has %" PRIu64 " bytes instead of %" PRIu64, file.size, bytes);
        return r < 0 ? r : arena_adopt(reaper, place, fd, 0, bytes, ret, refusal);
}

int arena_check(struct arena *arena, uint64_t bytes, struct refusal *refusal) {
        char text[512];
        int r;
        arena->unchecked += bytes;
        if (arena->unchecked < MEMORY_UNCHECKED)
                return 0;
        arena->unchecked = 0;
        r = memfd_check_kept(arena->fd, &arena->file, text, sizeof text);
        return r > 0 ? refuse(refusal, (uint32_t)r, "%s", text) : r;
}
