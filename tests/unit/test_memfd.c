/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is offered: what can be used, and the sentence for each thing that cannot. */
#include "descriptors.h"
#include "tests.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "gradsync.pb-c.h"
#include "proto/memfd.h"

#define PAGE 4096u
#define PAGES 16u
#define BYTES ((uint64_t)PAGES * PAGE)
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define FUTURE_WRITE 0x0010
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4u
#endif

static char text[256];

static void fill(int fd, uint64_t bytes) {
        assert_int_equal(fallocate(fd, 0, 0, (off_t)bytes), 0);
}

static void punch(int fd, uint64_t offset, uint64_t bytes) {
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                                   (off_t)bytes),
                         0);
}

static int offer(int fd, uint64_t offset, uint64_t bytes) {
        struct memfd_file file;

        return memfd_check(fd, offset, bytes, &file, text, sizeof(text));
}

/* Takes the fd. */
static void refused(int fd, const char *why) {
        assert_true(fd >= 0);
        assert_int_equal(offer(fd, 0, PAGE), WIRE__CODE__INVALID);
        if (strstr(text, why) == NULL)
                fail_msg("\"%s\" does not say \"%s\"", text, why);
        close(fd);
}

TEST_ALONE(sealed_memory_is_taken) {
        int fd = memfd_sealed(BYTES);
        struct memfd_file file = { 0 };
        struct stat info;

        assert_int_equal(memfd_check(fd, 0, BYTES, &file, text, sizeof(text)), 0);
        fstat(fd, &info);
        assert_int_equal(file.size, BYTES);
        assert_int_equal(file.inode, info.st_ino);
        assert_int_equal(file.device, info.st_dev);
        assert_int_equal(offer(fd, 4 * PAGE, BYTES - 4 * PAGE), 0);
        assert_int_equal(offer(fd, 0, 1), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
        assert_int_equal(offer(fd, 0, BYTES), 0);
        close(fd);
}

TEST_ALONE(seals_are_named) {
        refused(memfd_with_seals(BYTES, 0), "the seals F_SEAL_SHRINK F_SEAL_GROW");
        refused(memfd_with_seals(BYTES, F_SEAL_SHRINK), "the seal F_SEAL_GROW");
        refused(memfd_with_seals(BYTES, F_SEAL_GROW), "the seal F_SEAL_SHRINK");
        refused(memfd_with_seals(BYTES, SIZE_SEALS | F_SEAL_WRITE), "sealed against writing");
        refused(memfd_with_seals(BYTES, SIZE_SEALS | FUTURE_WRITE), "sealed against writing");
        refused(memfd_create("no seals", MFD_CLOEXEC), "the seals F_SEAL_SHRINK F_SEAL_GROW");
}

/* Files of tmpfs are like memfds, but cannot be sealed. Either folder below may or may not be one. */
static const char *why_no_file(int fd) {
        struct statfs system;

        assert_int_equal(fstatfs(fd, &system), 0);
        return system.f_type == TMPFS_MAGIC ? "the seals F_SEAL_SHRINK F_SEAL_GROW"
                                            : "is a file, directory or device";
}

TEST_ALONE(other_files_are_refused) {
        char name[] = "/tmp/gradsync-memfd-XXXXXX";
        int file = mkstemp(name), ends[2];

        assert_true(file >= 0);
        unlink(name);
        refused(file, why_no_file(file));
        refused(open("/tmp", O_RDONLY | O_CLOEXEC), "is a file, directory or device");
        refused(open("/dev/null", O_RDWR | O_CLOEXEC), "is a file, directory or device");
        refused(open("/dev/zero", O_RDWR | O_CLOEXEC), "is a file, directory or device");
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        refused(ends[0], "is a pipe");
        refused(ends[1], "is a pipe");
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        refused(ends[0], "is a socket");
        close(ends[1]);
        refused(epoll_create1(EPOLL_CLOEXEC), "an object of the kernel");
        assert_int_equal(offer(-1, 0, PAGE), WIRE__CODE__INVALID);
}

TEST_ALONE(files_of_tmpfs_are_refused) {
        int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        if (fd < 0 && access("/dev/shm", W_OK) < 0)
                skip();
        assert_true(fd >= 0);
        refused(fd, why_no_file(fd));
}

TEST_ALONE(huge_pages_are_refused) {
        int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

        if (fd < 0 && access("/sys/kernel/mm/hugepages", F_OK) < 0)
                skip();
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, 2 << 20), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, SIZE_SEALS), 0);
        refused(fd, "huge pages");
}

TEST_ALONE(descriptors_that_cannot_write_are_refused) {
        int fd = memfd_sealed(BYTES);
        char name[40];

        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        refused(open(name, O_RDONLY | O_CLOEXEC), "not open for reading and writing");
        refused(open(name, O_WRONLY | O_CLOEXEC), "not open for reading and writing");
        refused(open(name, O_PATH | O_CLOEXEC), "cannot be read or written");
        close(fd);
}

TEST_ALONE(ranges_are_checked) {
        int fd = memfd_sealed(BYTES);
        const struct {
                uint64_t offset, bytes;
                const char *why;
        } wrong[] = {
                { 1, PAGE, "multiple" },
                { 64, PAGE, "multiple" },
                { 0, 0, "do not lie" },
                { 0, BYTES + 1, "do not lie" },
                { PAGE, BYTES, "do not lie" },
                { BYTES, 1, "do not lie" },
                { BYTES + PAGE, 1, "do not lie" },
                { UINT64_MAX - PAGE + 1, PAGE, "do not lie" },
                { PAGE, UINT64_MAX, "do not lie" },
        };

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                assert_int_equal(offer(fd, wrong[i].offset, wrong[i].bytes), WIRE__CODE__INVALID);
                assert_non_null(strstr(text, wrong[i].why));
        }
        close(fd);
        fd = memfd_sealed((UINT64_C(1) << 46) + PAGE);
        assert_int_equal(offer(fd, 0, PAGE), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "too large"));
        close(fd);
}

static int present(int fd, struct memfd_file *file) {
        assert_int_equal(memfd_check(fd, 0, PAGE, file, text, sizeof(text)), 0);
        return memfd_check_present(fd, file, text, sizeof(text));
}

TEST_ALONE(arenas_are_known_by_their_name) {
        static const struct {
                const char *name;
                bool arena;
        } names[] = { { MEMFD_ARENA, true },
                      { MEMFD_CONTROL, true },
                      { MEMFD_CONTROL " ", false },
                      { MEMFD_ARENA "s", false },
                      { "gradsync-aren", false },
                      { "", false },
                      { MEMFD_ARENA " (deleted)", false } };
        char path[40];

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                int fd = memfd_create(names[i].name, MFD_CLOEXEC), again;

                assert_true(fd >= 0);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                again = open(path, O_RDONLY | O_CLOEXEC);
                assert_true(again >= 0);
                assert_int_equal(memfd_is_ours(fd), names[i].arena);
                assert_int_equal(memfd_is_ours(again), names[i].arena);
                close(again);
                close(fd);
        }
        assert_false(memfd_is_ours(-1));
}

TEST_ALONE(holes_are_found) {
        int fd = memfd_sealed(BYTES - 100);
        struct memfd_file file;

        assert_int_equal(present(fd, &file), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "only 0 of them"));
        fill(fd, BYTES - 100);
        assert_int_equal(present(fd, &file), 0);
        punch(fd, 3 * PAGE, PAGE);
        assert_int_equal(present(fd, &file), WIRE__CODE__INVALID);
        close(fd);
}

/* Room behind the end, taken before the seals, makes the count of pages look right. */
TEST_ALONE(room_behind_the_end_hides_no_hole) {
        int fd = memfd_with_seals(4u << 20, 0);
        struct memfd_file file;

        assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 4 << 20, 6 << 20), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, SIZE_SEALS), 0);
        assert_int_equal(present(fd, &file), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "behind its end"));
        close(fd);
}

TEST_ALONE(punched_holes_are_found) {
        int fd = memfd_sealed(BYTES);
        struct memfd_file file;

        fill(fd, BYTES);
        assert_int_equal(present(fd, &file), 0);
        assert_int_equal(memfd_check_kept(fd, &file, text, sizeof(text)), 0);
        punch(fd, 5 * PAGE, 2 * PAGE);
        assert_int_equal(memfd_check_kept(fd, &file, text, sizeof(text)), WIRE__CODE__INVALID);
        assert_non_null(strstr(text, "8192 of the 65536"));
        fill(fd, BYTES);
        assert_int_equal(memfd_check_kept(fd, &file, text, sizeof(text)), 0);
        assert_int_equal(memfd_check_kept(-1, &file, text, sizeof(text)), -EBADF);
        close(fd);
}
