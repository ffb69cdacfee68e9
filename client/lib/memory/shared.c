/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping and first touch of shared memory. */
#include "client/lib/memory/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"
#include "proto/frame.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MIB(bytes) ((double)(bytes) / 1048576.0)

/* A file smaller than what was announced would be a SIGBUS later. */
static int shared_check_fd(int fd, uint64_t bytes, const char *what, const char *name) {
        struct stat st;

        if (fstat(fd, &st) < 0)
                return fail(GRADSYNC_SYSTEM, "%s of job '%s': fstat: %s", what, name, strerror(errno));
        if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
                return fail(GRADSYNC_PROTOCOL,
                            "%s of job '%s': gradsyncd announced %" PRIu64 " bytes and sent a file of %lld",
                            what, name, bytes, (long long)st.st_size);
        return GRADSYNC_OK;
}

int shared_map(struct shared *memory, int fd, uint64_t bytes, const char *what, const char *name) {
        void *base;
        int r = fd < 0 ? GRADSYNC_OK : shared_check_fd(fd, bytes, what, name);

        if (r != GRADSYNC_OK)
                return r;
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
                    fd, 0);
        if (base == MAP_FAILED)
                return fail(errno == ENOMEM ? GRADSYNC_NO_MEMORY : GRADSYNC_SYSTEM,
                            "%s of job '%s': mapping %.1f MiB failed: %s; look at the limit of address "
                            "space (ulimit -v)",
                            what, name, MIB(bytes), strerror(errno));
        if (madvise(base, bytes, MADV_DONTFORK) < 0) {
                r = fail(GRADSYNC_SYSTEM, "%s of job '%s': madvise(MADV_DONTFORK): %s", what, name,
                         strerror(errno));
                munmap(base, bytes);
                return r;
        }
        *memory = (struct shared){ base, bytes };
        return GRADSYNC_OK;
}

void shared_unmap(struct shared *memory) {
        if (memory->base != NULL)
                munmap(memory->base, memory->bytes);
        *memory = (struct shared){ 0 };
}

/* For kernels before 5.14. It is atomic, so that no concurrent write is lost. */
static void shared_touch(const struct shared *memory) {
        for (uint64_t at = 0; at < memory->bytes; at += ARENA_PAGE)
                __atomic_fetch_add(memory->base + at, 0, __ATOMIC_RELAXED);
}

int shared_populate(const struct shared *memory, const char *what, const char *name) {
        while (madvise(memory->base, memory->bytes, MADV_POPULATE_WRITE) < 0) {
                if (errno == EINTR || errno == EAGAIN)
                        continue;
                if (errno != EINVAL)
                        return fail(GRADSYNC_NO_MEMORY,
                                    "%s of job '%s': %.1f MiB of memory could not be had (%s); the memory "
                                    "limit of this process's cgroup must hold the gradients of every plan: "
                                    "raise it, or use a smaller type",
                                    what, name, MIB(memory->bytes), strerror(errno));
                shared_touch(memory);
                break;
        }
        return GRADSYNC_OK;
}
