/* SPDX-License-Identifier: Apache-2.0 */
#include "core/roster.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/machine/nodeset.h"

#define HEADLINE "gradsync nodes 3\n"
#define LINE 2048u /* bytes of one of the text, at most */
#define DAY ((time_t)24 * 3600)
#define FORGET (30 * DAY)

struct entry {
        uint32_t address;
        uint8_t node[ROSTER_NODE];
        char host[ROSTER_HOST + 1];
        char *key, *uids;       /* of its owner */
        time_t seen;            /* last */
        time_t written;         /* when it was seen last, as the text says */
        uint64_t instance, run; /* the latest that was here since this process runs */
        bool here, used;
};

struct roster {
        struct entry *entry;
        unsigned n, room;
        void (*changed)(void *data);
        void *data;
};

static void roster_change(struct roster *roster) {
        roster->changed(roster->data);
}

/* ---- entries ---- */

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

static void roster_remove(struct roster *roster, struct entry *entry) {
        bool used = entry->used;

        entry_clear(entry);
        *entry = roster->entry[--roster->n];
        if (used)
                roster_change(roster);
}

static struct entry *roster_find(const struct roster *roster, const uint8_t *node, uint32_t address) {
        for (unsigned i = 0; i < roster->n; i++)
                if (node != NULL ? memcmp(roster->entry[i].node, node, ROSTER_NODE) == 0
                                 : roster->entry[i].address == address)
                        return &roster->entry[i];
        return NULL;
}

static void roster_forget(struct roster *roster, time_t now) {
        for (unsigned i = roster->n; i > 0; i--)
                if (!roster->entry[i - 1].here && roster->entry[i - 1].seen + FORGET < now)
                        roster_remove(roster, &roster->entry[i - 1]);
}

/* ---- the text ---- */

/* `key` and `uids` have room for any line. */
static bool read_entry(const char *line, struct entry *entry, char *key, char *uids) {
        char node[2 * ROSTER_NODE + 1];
        int64_t seen;
        int end = 0;

        if (sscanf(line, "%" SCNu32 " %32[0-9a-f] %64s %s %[0-9*,-] %" SCNd64 "%n", &entry->address, node,
                   entry->host, key, uids, &seen, &end) != 6 ||
            line[end] != '\n' || entry->address >= LIMIT_NODES || strlen(node) != 2 * ROSTER_NODE)
                return false;
        for (unsigned k = 0; k < ROSTER_NODE; k++) {
                unsigned byte;

                sscanf(node + 2 * k, "%2x", &byte);
                entry->node[k] = (uint8_t)byte;
        }
        entry->seen = entry->written = (time_t)seen;
        entry->used = true;
        return true;
}

static int roster_read_line(struct roster *roster, const char *line) {
        char key[LINE], uids[LINE];
        const struct roster_owner owner = { .key = key, .uids = uids };
        struct entry entry = { 0 }, *at;

        if (!read_entry(line, &entry, key, uids) || roster_find(roster, entry.node, 0) != NULL ||
            roster_find(roster, NULL, entry.address) != NULL)
                return -EBADMSG;
        at = roster_add(roster);
        if (at == NULL)
                return -ENOMEM;
        *at = entry;
        return entry_own(at, &owner) ? 0 : -ENOMEM;
}

static int roster_read(struct roster *roster, const char *text) {
        char line[LINE];
        int r = 0;

        if (strncmp(text, HEADLINE, strlen(HEADLINE)) != 0)
                return -EBADMSG;
        for (text += strlen(HEADLINE); *text != '\0' && r == 0; text += strlen(line)) {
                const char *end = strchr(text, '\n');

                if (end == NULL || (size_t)(end - text) + 2 > sizeof(line))
                        return -EBADMSG;
                snprintf(line, sizeof(line), "%.*s", (int)(end - text) + 1, text);
                r = roster_read_line(roster, line);
        }
        return r;
}

char *roster_text(const struct roster *roster) {
        size_t size = sizeof(HEADLINE), used;
        char *text;

        for (unsigned i = 0; i < roster->n; i++)
                size += 2 * ROSTER_NODE + ROSTER_HOST + 48 + strlen(roster->entry[i].key) +
                        strlen(roster->entry[i].uids);
        text = malloc(size);
        if (text == NULL)
                return NULL;
        used = (size_t)sprintf(text, "%s", HEADLINE);
        for (unsigned i = 0; i < roster->n; i++) {
                struct entry *entry = &roster->entry[i];

                if (!entry->used)
                        continue;
                used += (size_t)sprintf(text + used, "%" PRIu32 " ", entry->address);
                for (unsigned k = 0; k < ROSTER_NODE; k++)
                        used += (size_t)sprintf(text + used, "%02x", entry->node[k]);
                used += (size_t)sprintf(text + used, " %s %s %s %" PRId64 "\n", entry->host, entry->key,
                                        entry->uids, (int64_t)entry->seen);
                entry->written = entry->seen;
        }
        return text;
}

int roster_new(const char *text, time_t now, void (*changed)(void *data), void *data, struct roster **ret) {
        struct roster *roster = calloc(1, sizeof(*roster));
        int r;

        if (roster == NULL)
                return -ENOMEM;
        roster->changed = changed;
        roster->data = data;
        r = text != NULL ? roster_read(roster, text) : 0;
        if (r < 0) {
                roster_free(roster);
                return r;
        }
        roster_forget(roster, now);
        *ret = roster;
        return 0;
}

struct roster *roster_free(struct roster *roster) {
        if (roster == NULL)
                return NULL;
        for (unsigned i = 0; i < roster->n; i++)
                entry_clear(&roster->entry[i]);
        free(roster->entry);
        free(roster);
        return NULL;
}

/* ---- places ---- */

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

static bool is_limited(const char *uids) {
        return strcmp(uids, "*") != 0;
}

static bool roster_is_full(const struct roster *roster, const struct roster_owner *owner) {
        unsigned own = 0, limited = 0;

        for (unsigned i = 0; i < roster->n; i++) {
                own += strcmp(roster->entry[i].key, owner->key) == 0;
                limited += is_limited(roster->entry[i].uids);
        }
        return roster->n >= LIMIT_NODES ||
               (is_limited(owner->uids) && (own >= ROSTER_LIMITED || limited >= LIMIT_NODES / 2));
}

/* A daemon of that key; NULL if all of them are here. */
static struct entry *roster_find_longest_gone(const struct roster *roster, const char *key) {
        struct entry *best = NULL;

        for (unsigned i = 0; i < roster->n; i++) {
                struct entry *entry = &roster->entry[i];

                if (!entry->here && strcmp(entry->key, key) == 0 &&
                    (best == NULL || entry->seen < best->seen))
                        best = entry;
        }
        return best;
}

static int roster_admit(struct roster *roster, const struct roster_arrival *arrival, struct entry **ret) {
        struct entry fresh = { 0 }, *entry;

        roster_forget(roster, arrival->now);
        if (roster_is_full(roster, &arrival->owner)) {
                entry = roster_find_longest_gone(roster, arrival->owner.key);
                if (entry == NULL)
                        return -ENOSPC;
                roster_remove(roster, entry);
        }
        fresh.address = roster_free_address(roster, arrival->claimed);
        memcpy(fresh.node, arrival->node, ROSTER_NODE);
        entry = roster_add(roster);
        if (entry == NULL)
                return -ENOMEM;
        *entry = fresh;
        *ret = entry;
        return 0;
}

/* The text has each change of the entry, and once a day that the daemon was seen. */
static int entry_update(struct roster *roster, struct entry *entry, const struct roster_arrival *arrival) {
        bool same = entry->key != NULL && strcmp(entry->host, arrival->host) == 0 &&
                    strcmp(entry->key, arrival->owner.key) == 0 &&
                    strcmp(entry->uids, arrival->owner.uids) == 0;

        if (!same) {
                struct entry before = *entry;

                if (!entry_own(entry, &arrival->owner)) {
                        entry_clear(entry);
                        entry->key = before.key;
                        entry->uids = before.uids;
                        return -ENOMEM;
                }
                entry_clear(&before);
                snprintf(entry->host, sizeof(entry->host), "%s", arrival->host);
        }
        entry->seen = arrival->now;
        entry->instance = arrival->instance;
        entry->run = arrival->run;
        entry->here = true;
        if (entry->used && (!same || entry->written + DAY < arrival->now))
                roster_change(roster);
        return 0;
}

int roster_place(struct roster *roster, const struct roster_arrival *arrival, uint32_t *ret_address,
                 uint32_t *ret_host) {
        struct entry *entry = roster_find(roster, arrival->node, 0);
        bool known = entry != NULL;
        int r = known ? 0 : roster_admit(roster, arrival, &entry);

        if (r == 0)
                r = entry_update(roster, entry, arrival);
        if (r < 0 && entry != NULL && !known)
                roster->n--; /* the last one, without texts */
        if (r < 0)
                return r;
        *ret_address = entry->address;
        *ret_host = roster_host(roster, arrival->host);
        return 0;
}

void roster_use(struct roster *roster, const uint8_t node[ROSTER_NODE], time_t now) {
        struct entry *entry = roster_find(roster, node, 0);

        if (entry == NULL || entry->used)
                return;
        entry->seen = now;
        entry->used = true;
        roster_change(roster);
}

void roster_leave(struct roster *roster, const uint8_t node[ROSTER_NODE], time_t now) {
        struct entry *entry = roster_find(roster, node, 0);

        if (entry == NULL)
                return;
        entry->here = false;
        entry->seen = now;
        if (!entry->used)
                roster_remove(roster, entry);
}

bool roster_find_owner(const struct roster *roster, const uint8_t node[ROSTER_NODE],
                       struct roster_owner *ret) {
        const struct entry *entry = roster_find(roster, node, 0);

        if (entry != NULL)
                *ret = (struct roster_owner){ .key = entry->key, .uids = entry->uids };
        return entry != NULL;
}

bool roster_is_late(const struct roster *roster, const uint8_t node[ROSTER_NODE], uint64_t instance,
                    uint64_t run) {
        const struct entry *entry = roster_find(roster, node, 0);

        return entry != NULL &&
               (instance < entry->instance || (instance == entry->instance && run != entry->run));
}
