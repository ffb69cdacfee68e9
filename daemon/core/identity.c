/* SPDX-License-Identifier: Apache-2.0 */
/* The file has two slots, each of them the struct below in this machine's byte order. They are written in
 * turn and in place, so that a full disk is no obstacle. The later one that is whole counts. A slot that is
 * not whole was being written as the machine went down, or has been damaged since. The start and the terms
 * that it may have recorded are skipped. Beside the file stands NAME.lock, which is there to be locked. */
#include "core/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define MAGIC "gradsync"
#define VERSION 3u
#define TERMS (1u << 20) /* that are reserved at once: no run but a very long one waits for the disk again */
#define SPREAD 0x3fffffffu /* mask: a run leaves out so many terms, drawn anew each time */
#define SLOTS 2u
#define SLOT 512u /* bytes: a sector, which a disk writes as a whole */

struct saved {
        char magic[8];
        uint32_t version, unused;
        uint8_t node[IDENTITY_NODE];
        uint64_t sequence; /* grows with each write */
        uint64_t instance;
        uint64_t terms;         /* those up to here may have been used */
        uint32_t address, host; /* its place in a cluster; IDENTITY_NO_PLACE: none was given */
        uint64_t check;
};

struct identity {
        struct saved saved;
        uint64_t term; /* used last */
        int file, directory, lock;
        char *fresh; /* name of the file while it is being made; the other name is its beginning */
        char name[];
};

/* The first of several directories, which a colon separates: drop-ins of the unit add others. The name of a
 * device may have a colon, too, but no slash after it. */
static char *identity_first_of(const char *given) {
        const char *second = strstr(given, ":/");

        return second != NULL ? strndup(given, (size_t)(second - given)) : strdup(given);
}

int identity_place(const char *given, const char *socket, const char *what, char **ret_directory,
                   char **ret_name) {
        const char *slash = strrchr(socket, '/');
        int length = slash == socket ? 1 : slash != NULL ? (int)(slash - socket) : 1;

        *ret_name = NULL;
        if (given != NULL && given[0] != '\0') {
                *ret_directory = identity_first_of(given);
                *ret_name = strdup(what);
        } else {
                *ret_directory = strndup(slash != NULL ? socket : ".", (size_t)length);
                if (asprintf(ret_name, "%s.%s", slash != NULL ? slash + 1 : socket, what) < 0)
                        *ret_name = NULL;
        }
        if (*ret_directory != NULL && *ret_name != NULL)
                return 0;
        free(*ret_directory);
        free(*ret_name);
        return -ENOMEM;
}

/* FNV-1a: against torn and foreign contents, not against an enemy. */
static uint64_t saved_check(const struct saved *saved) {
        const unsigned char *byte = (const unsigned char *)saved;
        uint64_t sum = UINT64_C(0xcbf29ce484222325);

        for (size_t i = 0; i < offsetof(struct saved, check); i++)
                sum = (sum ^ byte[i]) * UINT64_C(0x100000001b3);
        return sum;
}

/* There is no place for the file: not the daemon's fault, and nothing is lost by it yet. */
static bool is_no_place(int error) {
        return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == EROFS ||
               error == ENOSPC || error == EDQUOT || error == EIO || error == ENOLCK || error == ENOSYS ||
               error == EOPNOTSUPP;
}

static int identity_fail(int error, const char *directory, const char *name, const char *what, char *text,
                         size_t size) {
        snprintf(text, size, "%s/%s cannot be %s: %s", directory, name, what, strerror(error));
        return is_no_place(error) ? 1 : -error;
}

static int write_at(int fd, const void *bytes, size_t length, off_t at) {
        ssize_t n = pwrite(fd, bytes, length, at);

        if (n < 0)
                return -errno;
        if ((size_t)n < length)
                return -ENOSPC;
        return fsync(fd) < 0 ? -errno : 0;
}

/* The change is on the disk when this returns 0; otherwise the file is as before. */
static int identity_save(struct identity *identity, const struct saved *changed) {
        struct saved saved = *changed;

        saved.sequence++;
        saved.check = saved_check(&saved);
        int r = write_at(identity->file, &saved, sizeof(saved), (off_t)(saved.sequence % SLOTS * SLOT));
        if (r == 0)
                identity->saved = saved;
        return r;
}

/* A file with both slots, of which one has been used. It is there as a whole, or not at all. */
static int identity_create(struct identity *identity, const struct saved *saved) {
        uint8_t slots[SLOTS * SLOT] = { 0 };

        if (unlinkat(identity->directory, identity->fresh, 0) < 0 && errno != ENOENT)
                return -errno;
        identity->file =
                openat(identity->directory, identity->fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (identity->file < 0)
                return -errno;
        for (unsigned i = 0; i < SLOTS; i++)
                memcpy(slots + i * SLOT, saved, sizeof(*saved));
        int r = write_at(identity->file, slots, sizeof(slots), 0);
        if (r == 0 && renameat(identity->directory, identity->fresh, identity->directory, identity->name) < 0)
                r = -errno;
        if (r == 0 && fsync(identity->directory) < 0)
                r = -errno;
        if (r < 0)
                unlinkat(identity->directory, identity->fresh, 0);
        return r;
}

static bool slot_is_whole(const struct saved *saved) {
        return memcmp(saved->magic, MAGIC, sizeof(saved->magic)) == 0 && saved->version == VERSION &&
               saved->check == saved_check(saved);
}

/* The later one of those that are whole. How many are. */
static unsigned saved_choose(const uint8_t slots[SLOTS * SLOT], struct saved *ret) {
        unsigned whole = 0;

        for (unsigned i = 0; i < SLOTS; i++) {
                struct saved slot;

                memcpy(&slot, slots + i * SLOT, sizeof(slot));
                if (!slot_is_whole(&slot) || (whole++ > 0 && slot.sequence <= ret->sequence))
                        continue;
                *ret = slot;
        }
        return whole;
}

/* Why it is not to be relied upon; NULL: it is. */
static const char *saved_read(int fd, struct saved *ret, unsigned *ret_whole) {
        uint8_t slots[SLOTS * SLOT];
        struct stat info;

        if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
                return "is no file";
        if (info.st_uid != geteuid())
                return "belongs to another user";
        if ((info.st_mode & 07777) != 0600)
                return "may be read or written by others, its mode is not 0600";
        if (info.st_size != sizeof(slots) || pread(fd, slots, sizeof(slots), 0) != sizeof(slots))
                return "has not the size that it should have";
        *ret_whole = saved_choose(slots, ret);
        return *ret_whole > 0 ? NULL : "is damaged, of another version, or something else";
}

static int saved_begin(struct saved *ret) {
        struct saved saved = { .magic = MAGIC, .version = VERSION, .address = IDENTITY_NO_PLACE };

        if (getrandom(saved.node, sizeof(saved.node), 0) != sizeof(saved.node))
                return -errno;
        saved.check = saved_check(&saved);
        *ret = saved;
        return 0;
}

static int identity_begin(struct identity *identity, const char *directory, struct saved *ret, char *error,
                          size_t size) {
        int r = saved_begin(ret);

        if (r == 0)
                r = identity_create(identity, ret);
        return r < 0 ? identity_fail(-r, directory, identity->name, "written", error, size) : 0;
}

/* The slot that is not whole may have said one more start, or one more block of terms, as each write does. */
static int identity_repair(struct identity *identity, const char *directory, struct saved *saved, char *error,
                           size_t size) {
        saved->instance++;
        saved->terms += SPREAD + TERMS;
        int r = identity_save(identity, saved);
        *saved = identity->saved;
        return r < 0 ? identity_fail(-r, directory, identity->name, "written", error, size) : 0;
}

static int identity_load(struct identity *identity, const char *directory, struct saved *ret, char *error,
                         size_t size) {
        const char *fault;
        unsigned whole;

        identity->file =
                openat(identity->directory, identity->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (identity->file < 0 && errno == ENOENT)
                return identity_begin(identity, directory, ret, error, size);
        if (identity->file >= 0)
                fault = saved_read(identity->file, ret, &whole);
        else if (errno == ELOOP || errno == EISDIR)
                fault = "is no file";
        else
                return identity_fail(errno, directory, identity->name, "written", error, size);
        if (fault == NULL)
                return whole == SLOTS ? 0 : identity_repair(identity, directory, ret, error, size);
        snprintf(error, size,
                 "%s/%s %s. It counts this daemon's starts, and they must not begin anew while others "
                 "remember them: restore it, or stop all jobs of this daemon on other hosts and remove it",
                 directory, identity->name, fault);
        return -EBADMSG;
}

static int identity_lock(struct identity *identity, const char *directory, char *error, size_t size) {
        _cleanup_(freep) char *name = NULL;

        if (asprintf(&name, "%s.lock", identity->name) < 0)
                return -ENOMEM;
        identity->lock = openat(identity->directory, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (identity->lock < 0)
                return identity_fail(errno, directory, name, "written", error, size);
        if (flock(identity->lock, LOCK_EX | LOCK_NB) == 0)
                return 0;
        if (errno != EWOULDBLOCK)
                return identity_fail(errno, directory, name, "locked", error, size);
        snprintf(error, size,
                 "%s/%s belongs to another gradsyncd that runs: give each a directory of its own", directory,
                 identity->name);
        return -EWOULDBLOCK;
}

/* Counts this start. Terms that a former run may have used are not used again. If an older copy of the file
 * was put back, another run has begun with the same file: by the random distance, this run almost certainly
 * uses other terms than that one. */
static int identity_start(struct identity *identity, const char *directory, char *error, size_t size) {
        struct saved saved;
        uint32_t apart;
        int r = identity_load(identity, directory, &saved, error, size);

        if (r != 0)
                return r;
        if (getrandom(&apart, sizeof(apart), 0) != sizeof(apart))
                return identity_fail(errno, directory, identity->name, "used", error, size);
        identity->term = saved.terms + (apart & SPREAD);
        saved.instance++;
        saved.terms = identity->term + TERMS;
        r = identity_save(identity, &saved);
        return r < 0 ? identity_fail(-r, directory, identity->name, "written", error, size) : 0;
}

int identity_open(const char *directory, const char *name, struct identity **ret, char *error, size_t size) {
        size_t length = strlen(name) + 1;
        struct identity *identity = calloc(1, sizeof(*identity) + 2 * length + strlen(".new"));

        if (identity == NULL)
                return identity_fail(ENOMEM, directory, name, "read", error, size);
        strcpy(identity->name, name);
        identity->fresh = identity->name + length;
        sprintf(identity->fresh, "%s.new", name);
        identity->lock = identity->file = -1;
        identity->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = identity->directory < 0 ? identity_fail(errno, directory, name, "written", error, size)
                                        : identity_lock(identity, directory, error, size);
        if (r == 0)
                r = identity_start(identity, directory, error, size);
        if (r != 0) {
                identity_close(identity);
                return r;
        }
        *ret = identity;
        return 0;
}

struct identity *identity_close(struct identity *identity) {
        if (identity == NULL)
                return NULL;
        closep(&identity->file);
        closep(&identity->lock);
        closep(&identity->directory);
        explicit_bzero(&identity->saved, sizeof(identity->saved));
        free(identity);
        return NULL;
}

const uint8_t *identity_node(const struct identity *identity) {
        return identity->saved.node;
}

uint64_t identity_instance(const struct identity *identity) {
        return identity->saved.instance;
}

int identity_take_term(struct identity *identity, uint64_t *ret) {
        struct saved saved = identity->saved;
        int r;

        if (identity->term == saved.terms) {
                saved.terms += TERMS;
                r = identity_save(identity, &saved);
                if (r < 0)
                        return r;
        }
        *ret = ++identity->term;
        return 0;
}

uint32_t identity_address(const struct identity *identity) {
        return identity->saved.address;
}

uint32_t identity_host(const struct identity *identity) {
        return identity->saved.host;
}

int identity_set_place(struct identity *identity, uint32_t address, uint32_t host) {
        struct saved saved = identity->saved;

        if (saved.address == address && saved.host == host)
                return 0;
        saved.address = address;
        saved.host = host;
        return identity_save(identity, &saved);
}
