/* SPDX-License-Identifier: Apache-2.0 */
#include "core/roster.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "rendezvous/nodeset.h"

#define HEADLINE "gradsync nodes 2\n"

#define LINE 2048u /* bytes of one of the file, at most */

struct entry {
        uint32_t address;
        uint8_t node[ROSTER_NODE];
        char host[ROSTER_HOST + 1];
        char *key, *uids; /* of its owner */
};

struct roster {
        char *path, *fresh;
        struct entry *entry;
        unsigned n, room;
};

/* The file is the old one or the new one, whatever happens meanwhile. */
static int replace_file(const char *path, const char *fresh, const char *text, size_t length) {
        _cleanup_(closep) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        _cleanup_(closep) int directory = -1;
        char parent[4096];
        const char *slash = strrchr(path, '/');
        ssize_t n;

        if (fd < 0)
                return -errno;
        n = write(fd, text, length);
        if (n < 0)
                return -errno;
        if ((size_t)n < length)
                return -ENOSPC;
        if (fsync(fd) < 0 || rename(fresh, path) < 0)
                return -errno;
        snprintf(parent, sizeof(parent), "%.*s", slash != NULL ? (int)(slash - path) : 1,
                 slash != NULL ? path : ".");
        directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return directory < 0 || fsync(directory) < 0 ? -errno : 0;
}

static struct entry *roster_add(struct roster *roster) {
        if (roster->n == roster->room) {
                unsigned room = roster->room > 0 ? 2 * roster->room : 16;
                struct entry *more = realloc(roster->entry, room * sizeof(*more));

                if (more == NULL)
                        return NULL;
                roster->entry = more;
                roster->room = room;
        }
        return memset(&roster->entry[roster->n++], 0, sizeof(struct entry));
}

static void entry_clear(struct entry *entry) {
        free(entry->key);
        free(entry->uids);
        entry->key = entry->uids = NULL;
}

static bool entry_own(struct entry *entry, const struct roster_owner *owner) {
        entry->key = strdup(owner->key);
        entry->uids = strdup(owner->uids);
        return entry->key != NULL && entry->uids != NULL;
}

static int roster_save(const struct roster *roster) {
        size_t size = sizeof(HEADLINE), used;
        _cleanup_(freep) char *text = NULL;

        for (unsigned i = 0; i < roster->n; i++)
                size += 2 * ROSTER_NODE + ROSTER_HOST + 16 + strlen(roster->entry[i].key) +
                        strlen(roster->entry[i].uids);
        text = malloc(size);
        if (text == NULL)
                return -ENOMEM;
        used = (size_t)sprintf(text, "%s", HEADLINE);
        for (unsigned i = 0; i < roster->n; i++) {
                used += (size_t)sprintf(text + used, "%" PRIu32 " ", roster->entry[i].address);
                for (unsigned k = 0; k < ROSTER_NODE; k++)
                        used += (size_t)sprintf(text + used, "%02x", roster->entry[i].node[k]);
                used += (size_t)sprintf(text + used, " %s %s %s\n", roster->entry[i].host,
                                        roster->entry[i].key, roster->entry[i].uids);
        }
        return replace_file(roster->path, roster->fresh, text, used);
}

static struct entry *roster_find(const struct roster *roster, const uint8_t *node, uint32_t address) {
        for (unsigned i = 0; i < roster->n; i++)
                if (node != NULL ? memcmp(roster->entry[i].node, node, ROSTER_NODE) == 0
                                 : roster->entry[i].address == address)
                        return &roster->entry[i];
        return NULL;
}

/* `key` and `uids` have room for any line. */
static bool read_entry(const char *line, struct entry *entry, char *key, char *uids) {
        char node[2 * ROSTER_NODE + 1];
        int end = 0;

        if (sscanf(line, "%" SCNu32 " %32[0-9a-f] %64s %s %[0-9*,-]%n", &entry->address, node, entry->host,
                   key, uids, &end) != 5 ||
            line[end] != '\n' || entry->address >= LIMIT_NODES || strlen(node) != 2 * ROSTER_NODE)
                return false;
        for (unsigned k = 0; k < ROSTER_NODE; k++) {
                unsigned byte;

                sscanf(node + 2 * k, "%2x", &byte);
                entry->node[k] = (uint8_t)byte;
        }
        return true;
}

static int roster_read(struct roster *roster, FILE *file) {
        char line[LINE], key[LINE], uids[LINE];
        struct roster_owner owner = { .key = key, .uids = uids };
        struct entry entry = { 0 }, *at;

        if (fgets(line, sizeof(line), file) == NULL || strcmp(line, HEADLINE) != 0)
                return -EBADMSG;
        while (fgets(line, sizeof(line), file) != NULL) {
                if (!read_entry(line, &entry, key, uids) || roster_find(roster, entry.node, 0) != NULL ||
                    roster_find(roster, NULL, entry.address) != NULL)
                        return -EBADMSG;
                at = roster_add(roster);
                if (at == NULL)
                        return -ENOMEM;
                *at = entry;
                if (!entry_own(at, &owner))
                        return -ENOMEM;
        }
        return ferror(file) ? -EIO : 0;
}

static int roster_load(struct roster *roster, char *error, size_t size) {
        FILE *file = fopen(roster->path, "re");
        int r = file != NULL ? roster_read(roster, file) : errno == ENOENT ? 0 : -errno;

        if (file != NULL)
                fclose(file);
        if (r == -EBADMSG)
                snprintf(
                        error, size,
                        "%s is damaged, or of another version. It says which daemon has which address, and "
                        "jobs of other hosts rely on it: restore it, or stop all jobs over several hosts and "
                        "remove it",
                        roster->path);
        else if (r < 0)
                snprintf(error, size, "%s: %s", roster->path, strerror(-r));
        return r;
}

int roster_open(const char *directory, const char *name, struct roster **ret, char *error, size_t size) {
        struct roster *roster = calloc(1, sizeof(*roster));

        if (roster == NULL || asprintf(&roster->path, "%s/%s.nodes", directory, name) < 0 ||
            asprintf(&roster->fresh, "%s/%s.nodes.new", directory, name) < 0) {
                snprintf(error, size, "out of memory");
                roster_free(roster);
                return -ENOMEM;
        }
        int r = roster_load(roster, error, size);
        if (r < 0) {
                roster_free(roster);
                return r;
        }
        *ret = roster;
        return 0;
}

struct roster *roster_free(struct roster *roster) {
        if (roster == NULL)
                return NULL;
        for (unsigned i = 0; i < roster->n; i++)
                entry_clear(&roster->entry[i]);
        free(roster->path);
        free(roster->fresh);
        free(roster->entry);
        free(roster);
        return NULL;
}

static uint32_t roster_host(const struct roster *roster, const char *host) {
        uint32_t lowest = UINT32_MAX;

        for (unsigned i = 0; i < roster->n; i++)
                if (strcmp(roster->entry[i].host, host) == 0 && roster->entry[i].address < lowest)
                        lowest = roster->entry[i].address;
        return lowest;
}

static uint32_t roster_free_address(const struct roster *roster, uint32_t claimed) {
        uint32_t address = 0;

        if (claimed < LIMIT_NODES && roster_find(roster, NULL, claimed) == NULL)
                return claimed;
        while (roster_find(roster, NULL, address) != NULL)
                address++;
        return address;
}

static bool entry_is(const struct entry *entry, const char *host, const struct roster_owner *owner) {
        return strcmp(entry->host, host) == 0 && strcmp(entry->key, owner->key) == 0 &&
               strcmp(entry->uids, owner->uids) == 0;
}

int roster_place(struct roster *roster, const uint8_t node[ROSTER_NODE], const char *host,
                 const struct roster_owner *owner, uint32_t claimed, uint32_t *ret_address,
                 uint32_t *ret_host) {
        struct entry *entry = roster_find(roster, node, 0);
        uint32_t address = entry != NULL ? entry->address : roster_free_address(roster, claimed);
        bool fresh = entry == NULL;

        if (address >= LIMIT_NODES)
                return -ENOSPC;
        if (fresh)
                entry = roster_add(roster);
        if (entry == NULL)
                return -ENOMEM;
        if (fresh || !entry_is(entry, host, owner)) {
                struct entry before = *entry;

                entry->address = address;
                memcpy(entry->node, node, ROSTER_NODE);
                snprintf(entry->host, sizeof(entry->host), "%s", host);
                int r = entry_own(entry, owner) ? roster_save(roster) : -ENOMEM;
                if (r < 0) {
                        entry_clear(entry);
                        *entry = before;
                        roster->n -= fresh;
                        return r;
                }
                entry_clear(&before);
        }
        *ret_address = address;
        *ret_host = roster_host(roster, host);
        return 0;
}

bool roster_find_owner(const struct roster *roster, const uint8_t node[ROSTER_NODE],
                       struct roster_owner *ret) {
        const struct entry *entry = roster_find(roster, node, 0);

        if (entry != NULL)
                *ret = (struct roster_owner){ .key = entry->key, .uids = entry->uids };
        return entry != NULL;
}

void roster_recall(const char *directory, const char *name, uint32_t *ret_address, uint32_t *ret_host) {
        _cleanup_(freep) char *path = NULL;
        uint32_t address, host;
        FILE *file;

        *ret_address = UINT32_MAX;
        *ret_host = 0;
        if (asprintf(&path, "%s/%s.place", directory, name) < 0)
                return;
        file = fopen(path, "re");
        if (file == NULL)
                return;
        if (fscanf(file, "gradsync place 1 %" SCNu32 " %" SCNu32, &address, &host) == 2 &&
            address < LIMIT_NODES && host < LIMIT_NODES) {
                *ret_address = address;
                *ret_host = host;
        }
        fclose(file);
}

int roster_remember(const char *directory, const char *name, uint32_t address, uint32_t host) {
        _cleanup_(freep) char *path = NULL, *fresh = NULL;
        char text[64];

        if (asprintf(&path, "%s/%s.place", directory, name) < 0 ||
            asprintf(&fresh, "%s/%s.place.new", directory, name) < 0)
                return -ENOMEM;
        int n = snprintf(text, sizeof(text), "gradsync place 1 %" PRIu32 " %" PRIu32 "\n", address, host);
        return replace_file(path, fresh, text, (size_t)n);
}
