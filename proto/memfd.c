/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals are read first: only memfds and files of tmpfs and hugetlbfs have any, and all of those answer at
 * once. Any other file is named as the kernel names it.
 */
#include "proto/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "gradsync.pb-c.h"
#include "proto/frame.h"

#define STAT_BLOCK 512u           /* unit of st_blocks */
#define HUGETLBFS 0x958458f6u     /* f_type */
#define SLACK (UINT64_C(2) << 20) /* bytes: a huge page at the end of a file counts as a whole */
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define INVALID WIRE__CODE__INVALID

/* Reads the link of the fd in /proc, cut to `size`: the kernel knows it without asking the file system. */
static bool memfd_read_link(int fd, char *link, size_t size) {
        char path[40];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, link, size - 1);
        link[n < 0 ? 0 : n] = '\0';
        return n >= 0;
}

/* The link begins with the kind, except where it is a path. */
static const char *memfd_kind(int fd) {
        char link[16];

        if (!memfd_read_link(fd, link, sizeof(link)))
                return "something unknown";
        if (strncmp(link, "socket:", 7) == 0)
                return "a socket";
        if (strncmp(link, "pipe:", 5) == 0)
                return "a pipe";
        if (strncmp(link, "anon_inode:", 11) == 0)
                return "an object of the kernel without a file";
        return strncmp(link, "/memfd:", 7) == 0 ? "a memfd that cannot be read or written"
                                                : "a file, directory or device";
}

bool memfd_is_ours(int fd) {
        char link[64];

        return memfd_read_link(fd, link, sizeof(link)) &&
               (strcmp(link, "/memfd:" MEMFD_ARENA " (deleted)") == 0 ||
                strcmp(link, "/memfd:" MEMFD_CONTROL " (deleted)") == 0);
}

int memfd_new(const char *name, uint64_t bytes) {
        int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

        if (fd < 0)
                return -errno;
        if (ftruncate(fd, (off_t)bytes) == 0 &&
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
                return fd;
        r = -errno;
        close(fd);
        return r;
}

static int memfd_check_seals(int fd, char *text, size_t size) {
        int seals = fcntl(fd, F_GET_SEALS), flags;

        if (seals < 0) {
                snprintf(text, size, "the descriptor is %s; gradsync needs a memfd: see memfd_create(2)",
                         memfd_kind(fd));
                return INVALID;
        }
        if ((seals & SIZE_SEALS) != SIZE_SEALS) {
                snprintf(text, size,
                         "the memory lacks the seal%s%s%s: its size could change under the daemon; make it "
                         "with "
                         "memfd_create(MFD_ALLOW_SEALING) and seal it with fcntl(F_ADD_SEALS)",
                         (seals & SIZE_SEALS) == 0 ? "s" : "", seals & F_SEAL_SHRINK ? "" : " F_SEAL_SHRINK",
                         seals & F_SEAL_GROW ? "" : " F_SEAL_GROW");
                return INVALID;
        }
        flags = fcntl(fd, F_GETFL);
        if (flags < 0)
                return -errno;
        if ((flags & O_ACCMODE) != O_RDWR || seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) {
                snprintf(text, size, "the memory %s; averages are written into it",
                         (flags & O_ACCMODE) != O_RDWR ? "is not open for reading and writing"
                                                       : "is sealed against writing");
                return INVALID;
        }
        return 0;
}

static int memfd_check_range(const struct memfd_file *file, uint64_t offset, uint64_t bytes, char *text,
                             size_t size) {
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

        if (offset % page != 0)
                snprintf(text, size, "offset %" PRIu64 " is not a multiple of %" PRIu64 ", a page", offset,
                         page);
        else if (bytes == 0 || offset > file->size || bytes > file->size - offset)
                snprintf(text, size,
                         "%" PRIu64 " bytes at offset %" PRIu64 " do not lie in a memory of %" PRIu64, bytes,
                         offset, file->size);
        else if (file->size > LIMIT_ARENA)
                snprintf(text, size, "a memory of %" PRIu64 " bytes is too large; %" PRIu64 " are possible",
                         file->size, LIMIT_ARENA);
        else
                return 0;
        return INVALID;
}

int memfd_check(int fd, uint64_t offset, uint64_t bytes, struct memfd_file *ret, char *text, size_t size) {
        struct statfs system;
        struct stat info;
        int r = memfd_check_seals(fd, text, size);

        if (r != 0)
                return r;
        if (fstatfs(fd, &system) < 0 || fstat(fd, &info) < 0)
                return -errno;
        if ((unsigned long)system.f_type == HUGETLBFS) {
                snprintf(text, size,
                         "the memory is made of huge pages (hugetlbfs); an access may end a process where "
                         "none is "
                         "left: use memfd_create() without MFD_HUGETLB");
                return INVALID;
        }
        struct memfd_file file = (struct memfd_file){ .device = info.st_dev,
                                                      .inode = info.st_ino,
                                                      .size = (uint64_t)info.st_size };
        r = memfd_check_range(&file, offset, bytes, text, size);
        if (r == 0)
                *ret = file;
        return r;
}

static int memfd_count_present(int fd, uint64_t *ret) {
        struct stat info;

        if (fstat(fd, &info) < 0)
                return -errno;
        *ret = (uint64_t)info.st_blocks * STAT_BLOCK;
        return 0;
}

int memfd_check_end(int fd, const struct memfd_file *file, char *text, size_t size) {
        uint64_t present = 0;
        int r = memfd_count_present(fd, &present);

        if (r < 0 || present <= frame_round_up(file->size, SLACK))
                return r;
        snprintf(text, size,
                 "the memory has %" PRIu64 " bytes, but pages for %" PRIu64
                 ": make it without room behind its end",
                 file->size, present);
        return INVALID;
}

/* Pages after the end of the file, left from before it was sealed, could make up for holes before the end. So
 * the number of pages may exceed the size by less than a huge page. */
int memfd_check_present(int fd, const struct memfd_file *file, char *text, size_t size) {
        uint64_t present = 0;
        int r = memfd_count_present(fd, &present);

        if (r < 0)
                return r;
        if (present >= frame_round_up(file->size, (uint64_t)sysconf(_SC_PAGESIZE)))
                return memfd_check_end(fd, file, text, size);
        snprintf(text, size,
                 "the memory has %" PRIu64 " bytes, but only %" PRIu64
                 " of them were touched: write to every page of the whole file, and leave no holes",
                 file->size, present);
        return INVALID;
}

/* Does not compare with the first count: a huge page at the end may have been split since. */
int memfd_check_kept(int fd, const struct memfd_file *file, char *text, size_t size) {
        uint64_t whole = frame_round_up(file->size, (uint64_t)sysconf(_SC_PAGESIZE)), present = 0;
        int r = memfd_count_present(fd, &present);

        if (r < 0 || present >= whole)
                return r;
        snprintf(text, size,
                 "%" PRIu64 " of the %" PRIu64
                 " bytes of shared memory were given back to the kernel (holes were punched) "
                 "while gradsyncd uses it",
                 whole - present, whole);
        return INVALID;
}
