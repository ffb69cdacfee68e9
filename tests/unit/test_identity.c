/* SPDX-License-Identifier: Apache-2.0 */
/* The identity that a daemon keeps over its runs: no number comes twice, and errors name a file, or a place,
 * that cannot be relied upon. */
#include "tests.h"
#include "tree_fixture.h"

#include <sys/resource.h>

#include "core/identity.h"

static char path[64], error[512];
static int fail_fsync, fail_rename; /* the call from now on that fails; 0: none */
static unsigned synced, renamed;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_renameat(int from, const char *old, int to, const char *new);
int __wrap_renameat(int from, const char *old, int to, const char *new);

int __wrap_fsync(int fd) {
        synced++;
        if (fail_fsync > 0 && --fail_fsync == 0) {
                errno = EIO;
                return -1;
        }
        return __real_fsync(fd);
}

int __wrap_renameat(int from, const char *old, int to, const char *new) {
        assert_int_equal(synced, 1); /* what is new is on the disk, and not only begun */
        renamed++;
        if (fail_rename > 0 && --fail_rename == 0) {
                errno = EROFS;
                return -1;
        }
        return __real_renameat(from, old, to, new);
}

static int setup(void **state) {
        assert_int_equal(tree_make(state), 0);
        strcpy(path, in_tree("id"));
        error[0] = '\0';
        fail_fsync = fail_rename = 0;
        synced = renamed = 0;
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, tree_remove)

static int open_id(struct identity **ret) {
        *ret = NULL;
        return identity_open(root, "id", ret, error, sizeof(error));
}

static struct identity *start(void) {
        struct identity *identity;

        assert_int_equal(open_id(&identity), 0);
        return identity;
}

static void assert_says(const char *what) {
        assert_non_null(strstr(error, path));
        assert_non_null(strstr(error, what));
}

static void assert_unreliable(const char *what) {
        struct identity *identity;

        assert_int_equal(open_id(&identity), -EBADMSG);
        assert_null(identity);
        assert_says(what);
        assert_non_null(strstr(error, "restore it, or"));
}

TEST(starts_are_counted_and_the_rest_stays) {
        uint8_t node[IDENTITY_NODE];
        struct identity *identity = start();
        struct stat info;

        assert_int_equal(identity_instance(identity), 1);
        memcpy(node, identity_node(identity), sizeof(node));
        identity_close(identity);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);
        for (unsigned run = 2; run < 5; run++) {
                identity = start();
                assert_int_equal(identity_instance(identity), run);
                assert_memory_equal(identity_node(identity), node, sizeof(node));
                identity_close(identity);
        }
        assert_int_equal(renamed, 1);
        unlink(path);
        synced = 0;
        identity = start();
        assert_memory_not_equal(identity_node(identity), node, sizeof(node));
        identity_close(identity);
}

#define SLOT 512
#define FILE_BYTES (2 * SLOT)

static int read_file(unsigned char bytes[FILE_BYTES]) {
        int fd = open(path, O_RDWR);

        assert_int_equal(pread(fd, bytes, FILE_BYTES, 0), FILE_BYTES);
        return fd;
}

/* However a run ends, and however many terms it has used. */
TEST(no_term_comes_twice) {
        static const unsigned taken[] = { 0, 3000, (1u << 20) + 1, 3000 }; /* one more than are reserved */
        uint64_t last = 0, term;

        for (unsigned run = 0; run < 4; run++) {
                struct identity *identity = start();

                for (unsigned i = 0; i < taken[run]; i++) {
                        assert_int_equal(identity_take_term(identity, &term), 0);
                        assert_true(term > last);
                        assert_true(i == 0 || term == last + 1);
                        last = term;
                }
                identity_close(identity);
        }
        assert_true(synced < 4 + 8); /* the disk is not asked for each of them */
        assert_int_equal(renamed, 1);
}

/* A run that begins with an older copy of the file does not use the terms that were used since. */
TEST(terms_are_apart_where_a_file_is_put_back) {
        unsigned char bytes[FILE_BYTES];
        uint64_t term[2], next;
        int fd;

        identity_close(start());
        fd = read_file(bytes);
        for (unsigned i = 0; i < 2; i++) {
                struct identity *identity = start();

                assert_int_equal(identity_take_term(identity, &term[i]), 0);
                identity_close(identity);
                assert_int_equal(pwrite(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
        }
        close(fd);
        next = term[0] > term[1] ? term[0] - term[1] : term[1] - term[0];
        assert_true(next > 10); /* ten of 2^30 */
}

TEST(two_daemons_never_share_it) {
        struct identity *first = start(), *second;

        assert_int_equal(open_id(&second), -EWOULDBLOCK);
        assert_null(second);
        assert_says("belongs to another gradsyncd");
        identity_close(first);
        second = start();
        assert_int_equal(identity_instance(second), 2);
        identity_close(second);
}

/* A machine that goes down in the middle of a write leaves the other slot; what was written may have been
 * used. */
TEST(one_slot_is_enough) {
        unsigned char bytes[FILE_BYTES];
        uint64_t instance, term, last;
        struct identity *identity = start();
        uint8_t node[IDENTITY_NODE];
        int fd = read_file(bytes);

        memcpy(node, identity_node(identity), sizeof(node));
        for (size_t i = 0; i < FILE_BYTES; i += i % SLOT == 160 ? SLOT - 160 : 1) {
                unsigned char other;

                instance = identity_instance(identity);
                assert_int_equal(identity_take_term(identity, &last), 0);
                identity_close(identity);
                assert_int_equal(pread(fd, &other, 1, (off_t)i), 1);
                other ^= 0x10;
                assert_int_equal(pwrite(fd, &other, 1, (off_t)i), 1);
                identity = start();
                assert_true(identity_instance(identity) > instance);
                assert_int_equal(identity_take_term(identity, &term), 0);
                assert_true(term > last);
                assert_memory_equal(identity_node(identity), node, sizeof(node));
        }
        identity_close(identity);
        close(fd);
}

TEST(damaged_files_are_refused) {
        unsigned char bytes[FILE_BYTES + 1] = { 0 };
        int fd;

        identity_close(start());
        fd = read_file(bytes);
        bytes[30] ^= 1;
        bytes[SLOT + 30] ^= 1;
        assert_int_equal(pwrite(fd, bytes, FILE_BYTES, 0), FILE_BYTES);
        assert_unreliable("is damaged, of another version");
        bytes[30] ^= 1;
        for (size_t size = 0; size < FILE_BYTES; size += 73) {
                assert_int_equal(ftruncate(fd, (off_t)size), 0);
                assert_unreliable("has not the size");
        }
        assert_int_equal(pwrite(fd, bytes, FILE_BYTES + 1, 0), FILE_BYTES + 1);
        assert_unreliable("has not the size");
        memset(bytes, 0, sizeof(bytes));
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, bytes, FILE_BYTES, 0), FILE_BYTES); /* a crash before it was written */
        assert_unreliable("is damaged, of another version");
        close(fd);
}

TEST(a_daemon_remembers_its_place) {
        struct identity *identity = start();

        assert_int_equal(identity_address(identity), IDENTITY_NO_PLACE);
        assert_int_equal(identity_set_place(identity, 5, 3), 0);
        identity_close(identity);
        identity = start();
        assert_int_equal(identity_address(identity), 5);
        assert_int_equal(identity_host(identity), 3);
        fail_fsync = 1;
        assert_int_equal(identity_set_place(identity, 6, 3), -EIO);
        assert_int_equal(identity_address(identity), 5);
        assert_int_equal(identity_set_place(identity, 5, 3), 0);
        identity_close(identity);
}

TEST(files_that_others_can_touch_are_refused) {
        static const mode_t modes[] = { 0644, 0660, 0400, 0602, 04600 };

        identity_close(start());
        for (unsigned i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
                assert_int_equal(chmod(path, modes[i]), 0);
                if (geteuid() == 0 || modes[i] != 0400)
                        assert_unreliable("mode is not 0600");
        }
        assert_int_equal(chmod(path, 0600), 0);
        if (geteuid() == 0) {
                assert_int_equal(chown(path, 4711, (gid_t)-1), 0);
                assert_unreliable("belongs to another user");
        }
}

TEST(what_is_no_file_is_refused) {
        const char *other = in_tree("id.new");

        identity_close(start());
        assert_int_equal(rename(path, other), 0);
        assert_int_equal(symlink(other, path), 0);
        assert_unreliable("is no file");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_unreliable("is no file");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_unreliable("is no file");
}

/* Nothing that a former run has left half done counts. */
TEST(what_was_not_finished_is_nothing) {
        put("id.new", "half");
        identity_close(start());
        assert_int_equal(access(in_tree("id.new"), F_OK), -1);
}

TEST(without_a_place_there_is_no_identity) {
        struct identity *identity = NULL;

        assert_int_equal(identity_open("/nowhere/at/all", "id", &identity, error, sizeof(error)), 1);
        assert_non_null(strstr(error, "/nowhere/at/all/id cannot be written: No such file"));
        assert_int_equal(identity_open("/dev/null", "id", &identity, error, sizeof(error)), 1);
        assert_int_equal(identity_open("/proc/self", "id", &identity, error, sizeof(error)), 1);
        assert_null(identity);
        assert_int_equal(symlink("/nowhere/at/all", in_tree("id.lock")),
                         0); /* a link that the daemon did not make */
        assert_true(open_id(&identity) < 0);
}

/* An identity that could not be put on the disk is not used. Its file is there as a whole or not at all. */
TEST(a_disk_that_fails_costs_the_identity_and_no_more) {
        struct identity *identity;
        uint64_t term, last = 0;
        unsigned taken = 0;

        for (int which = 1; which < 4; which++) { /* of the file, of the directory, of the start */
                fail_fsync = which;
                synced = 0;
                assert_int_equal(open_id(&identity), 1);
                assert_null(identity);
                assert_says("cannot be written: Input/output error");
                unlink(path);
        }
        fail_rename = 1;
        synced = 0;
        assert_int_equal(open_id(&identity), 1);
        assert_says("cannot be written: Read-only file system");
        assert_int_equal(access(path, F_OK), -1);
        synced = 0;
        identity = start();
        for (fail_fsync = 1; identity_take_term(identity, &term) == 0; last = term)
                taken++;
        assert_int_equal(taken, 1u << 20); /* all that are reserved, and none beyond */
        assert_int_equal(fail_fsync, 0);
        assert_int_equal(identity_take_term(identity, &term), 0); /* the disk has recovered */
        assert_int_equal(term, last + 1);
        identity_close(identity);
        identity = start();
        assert_int_equal(identity_take_term(identity, &term), 0);
        assert_true(term > last + 1);
        identity_close(identity);
}

/* The identity needs no more space on the disk than it has. */
TEST(a_full_disk_is_no_obstacle) {
        struct rlimit limit, little;
        struct identity *identity;
        struct stat before, after;

        identity_close(start());
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        little = (struct rlimit){ .rlim_cur = FILE_BYTES, .rlim_max = limit.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        identity = start();
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(after.st_size, before.st_size);
        identity_close(identity);
}

static void assert_place(const char *given, const char *socket, const char *where, const char *what) {
        char *in, *name;

        assert_int_equal(identity_place(given, socket, "identity", &in, &name), 0);
        assert_string_equal(in, where);
        assert_string_equal(name, what);
        free(in);
        free(name);
}

TEST_ALONE(it_lies_in_the_state_directory_or_beside_the_socket) {
        assert_place("/var/lib/gradsync/cpu", "/run/gradsync/cpu/socket", "/var/lib/gradsync/cpu",
                     "identity");
        assert_place("/var/lib/gradsync/cpu:left", "s", "/var/lib/gradsync/cpu:left", "identity");
        assert_place("/run/gradsyncd/cuda:0:/run/gradsync-metrics/cuda:0", "s", "/run/gradsyncd/cuda:0",
                     "identity");
        assert_place(NULL, "/run/user/1/s", "/run/user/1", "s.identity");
        assert_place("", "/s", "/", "s.identity");
        assert_place(NULL, "s", ".", "s.identity");
        assert_place(NULL, "a/s", "a", "s.identity");
}
