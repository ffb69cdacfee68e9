/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that daemons share to prove themselves to each other. A file has one key a line:
 *
 *     NAME SECRET [uids=1000,2000-2999|*] [until=2027-01-31T00:00:00Z]
 *
 * SECRET is 32 to 128 hexadecimal digits, drawn at random. A key without `uids` speaks for all users. A file
 * may have two keys, so that one can take the place of the other: this daemon shows the first one that has
 * not expired, and accepts all that have not expired. Empty lines, and lines that begin with '#', are
 * ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define KEY_NAME 64u
#define KEY_NONE "!"  /* in place of a name where there is no key; no key can have this name */
#define KEY_LEAST 16u /* bytes of a secret: 128 random bits */
#define KEY_MOST 64u
#define KEY_RANGES 64u
#define KEY_UIDS (22u * KEY_RANGES + 1) /* bytes of the uids of a key as text, with the 0 at its end */
#define KEYS_MOST 2u

struct key {
        char name[KEY_NAME + 1];
        uint8_t secret[KEY_MOST];
        size_t length;
        bool all_uids;
        struct key_range {
                uint32_t first, last;
        } range[KEY_RANGES];
        unsigned n_ranges;
        time_t until; /* 0: it never expires */
};

struct keys {
        struct key key[KEYS_MOST];
        unsigned n;
};

/* Parses keys. 0; or a negative errno and a sentence in `error` that names the file and the line. */
int keys_parse(const char *text, size_t length, const char *file, struct keys *ret, char *error, size_t size);
/*
 * Loads keys. `where` is a path; or `credential:NAME`, a file of the service manager in the directory
 * `credentials` (NULL if there is none); or "": the credential KEY_CREDENTIAL, and no keys if there is none.
 * The file must belong to root or to this process's user, and no other user may read or write it. A
 * credential may also have read permission for its group: the service manager can let this user read it by an
 * access list, which looks like that.
 */
#define KEY_CREDENTIAL "gradsync-key"
int keys_load(const char *where, const char *credentials, struct keys *ret, char *error, size_t size);
void keys_clear(struct keys *keys);
/* Returns the key of that name; NULL if there is none, or it has expired at that time. */
const struct key *keys_find(const struct keys *keys, const char *name, size_t length, time_t now);
/* Returns the key with the same name and secret in `keys`; NULL if it is gone, or has expired at that
 * time. */
const struct key *keys_still_have(const struct keys *keys, const struct key *key, time_t now);
bool key_speaks_for(const struct key *key, uid_t uid);
/* Writes the uids that the key speaks for, as in a file of keys: "*", or ranges. */
void key_uids(const struct key *key, char text[KEY_UIDS]);
/* Whether the first text names all uids that the second one names. False if one of them is malformed. */
bool key_uids_cover(const char *uids, const char *others);
bool key_is_over(const struct key *key, time_t now);
