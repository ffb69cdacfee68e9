/* SPDX-License-Identifier: Apache-2.0 */
#include "link/key.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"

#define FILE_MOST 65536u
#define LINE_MOST 2048u
#define CREDENTIAL "credential:"

struct key_line { /* the line that is being read, for error texts */
        const char *file;
        unsigned line;
        char *error;
        size_t size;
};

static int key_line_complain(const struct key_line *place, const char *what) {
        snprintf(place->error, place->size, "%s:%u: %s", place->file, place->line, what);
        return -EINVAL;
}

static bool read_name(const char *word, struct key *key) {
        size_t n = strlen(word);

        if (n < 1 || n > KEY_NAME ||
            strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != n)
                return false;
        strcpy(key->name, word);
        return true;
}

static int hex_digit(char c) {
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_secret(const char *word, struct key *key) {
        size_t n = strlen(word);

        if (n % 2 != 0 || n / 2 < KEY_LEAST || n / 2 > KEY_MOST)
                return false;
        key->length = n / 2;
        for (size_t i = 0; i < key->length; i++) {
                int high = hex_digit(word[2 * i]), low = hex_digit(word[2 * i + 1]);

                if (high < 0 || low < 0)
                        return false;
                key->secret[i] = (uint8_t)(high << 4 | low);
        }
        return true;
}

static bool read_uid(const char **text, uint32_t *ret) {
        char *end;

        if (**text < '0' || **text > '9')
                return false;
        errno = 0;
        unsigned long long value = strtoull(*text, &end, 10);
        if (errno != 0 || value >= UINT32_MAX)
                return false;
        *text = end;
        *ret = (uint32_t)value;
        return true;
}

static bool read_uids(const char *text, struct key *key) {
        key->all_uids = strcmp(text, "*") == 0;
        if (key->all_uids)
                return true;
        do {
                uint32_t first, last;

                if (key->n_ranges == KEY_RANGES || !read_uid(&text, &first))
                        return false;
                last = first;
                if (*text == '-' && (text++, !read_uid(&text, &last) || last < first))
                        return false;
                key->range[key->n_ranges].first = first;
                key->range[key->n_ranges++].last = last;
        } while (*text++ == ',');
        return text[-1] == '\0';
}

static bool read_until(const char *text, struct key *key) {
        struct tm tm = { 0 };
        const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);

        key->until = end != NULL && *end == '\0' ? timegm(&tm) : 0;
        return key->until > 0;
}

static int read_words(char *line, const struct key_line *place, struct key *key) {
        char *rest = NULL, *word = strtok_r(line, " \t", &rest);
        bool uids = false;

        if (word == NULL || !read_name(word, key))
                return key_line_complain(place, "a key begins with its name: letters, digits, '.', '_', '-'");
        word = strtok_r(NULL, " \t", &rest);
        if (word == NULL || !read_secret(word, key))
                return key_line_complain(place,
                                         "a secret follows the name: 32 to 128 hexadecimal digits (make "
                                         "one with gradsyncctl key new)");
        while ((word = strtok_r(NULL, " \t", &rest)) != NULL) {
                if (strncmp(word, "uids=", 5) == 0 && !uids && read_uids(word + 5, key))
                        uids = true;
                else if (strncmp(word, "until=", 6) == 0 && key->until == 0 && read_until(word + 6, key))
                        continue;
                else
                        return key_line_complain(place,
                                                 "after the secret there can be uids=1000,2000-2999 (or "
                                                 "uids=*) and until=2027-01-31T00:00:00Z");
        }
        key->all_uids |= !uids;
        return 0;
}

static int read_line(char *line, const struct key_line *place, struct keys *keys) {
        line += strspn(line, " \t");
        if (line[0] == '\0' || line[0] == '#')
                return 0;
        if (keys->n == KEYS_MOST)
                return key_line_complain(place,
                                         "there are two keys at most: the one in use, and one that takes "
                                         "its place");
        int r = read_words(line, place, &keys->key[keys->n]);
        if (r < 0)
                return r;
        if (keys->n > 0 && strcmp(keys->key[0].name, keys->key[1].name) == 0)
                return key_line_complain(place, "two keys have one name");
        keys->n++;
        return 0;
}

int keys_parse(const char *text, size_t length, const char *file, struct keys *ret, char *error,
               size_t size) {
        struct key_line place = { .file = file, .error = error, .size = size };
        char line[LINE_MOST];
        int r = 0;

        *ret = (struct keys){ 0 };
        while (length > 0 && r == 0) {
                const char *end = memchr(text, '\n', length);
                size_t n = end != NULL ? (size_t)(end - text) : length, step = n + (end != NULL);

                place.line++;
                if (n >= sizeof(line) || memchr(text, '\0', n) != NULL) {
                        r = key_line_complain(&place, "the line is too long, or no text");
                } else {
                        memcpy(line, text, n);
                        line[n] = '\0';
                        r = read_line(line, &place, ret);
                }
                text += step;
                length -= step;
        }
        explicit_bzero(line, sizeof(line));
        if (r == 0 && ret->n == 0) {
                snprintf(error, size, "%s has no key: make one with gradsyncctl key new", file);
                r = -ENOKEY;
        }
        if (r < 0)
                keys_clear(ret);
        return r;
}

/* Returns why the file cannot be relied upon; NULL if it can. */
static const char *file_fault(int fd, bool credential) {
        struct stat info;

        if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
                return "is no file";
        if (info.st_uid != 0 && info.st_uid != geteuid())
                return "belongs to another user";
        if ((info.st_mode & (credential ? 037 : 077)) != 0)
                return "may be read or written by others than its owner: chmod 0600";
        return info.st_size > (off_t)FILE_MOST ? "is too large" : NULL;
}

static int file_load(const char *file, bool credential, struct keys *ret, char *error, size_t size) {
        _cleanup_(closep) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        char *text = NULL;
        const char *fault;

        if (fd < 0)
                return error_say(-errno, error, size, "key_file %s", file);
        fault = file_fault(fd, credential);
        if (fault != NULL) {
                snprintf(error, size, "key_file %s %s", file, fault);
                return -EPERM;
        }
        text = malloc(FILE_MOST);
        if (text == NULL)
                return error_say(-ENOMEM, error, size, "key_file %s", file);
        ssize_t n = read(fd, text, FILE_MOST);
        int r = n < 0 ? error_say(-errno, error, size, "key_file %s", file)
                      : keys_parse(text, (size_t)n, file, ret, error, size);
        explicit_bzero(text, FILE_MOST);
        free(text);
        return r;
}

int keys_load(const char *where, const char *credentials, struct keys *ret, char *error, size_t size) {
        const char *name = KEY_CREDENTIAL;
        _cleanup_(freep) char *path = NULL;

        *ret = (struct keys){ 0 };
        if (where[0] != '\0' && strncmp(where, CREDENTIAL, strlen(CREDENTIAL)) != 0)
                return file_load(where, false, ret, error, size);
        if (where[0] != '\0')
                name = where + strlen(CREDENTIAL);
        if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL) {
                snprintf(error, size, "key_file %s: after 'credential:' stands the name of a credential",
                         where);
                return -EINVAL;
        }
        if (credentials == NULL && where[0] != '\0') {
                snprintf(error, size,
                         "key_file %s: the service manager has passed no credentials: LoadCredential=%s:PATH "
                         "in the unit does that",
                         where, name);
                return -ENOENT;
        }
        if (credentials != NULL && asprintf(&path, "%s/%s", credentials, name) < 0)
                return error_say(-ENOMEM, error, size, "the credential %s", name);
        if (where[0] == '\0' && (path == NULL || access(path, F_OK) < 0))
                return 0;
        return file_load(path, true, ret, error, size);
}

void keys_clear(struct keys *keys) {
        explicit_bzero(keys, sizeof(*keys));
}

bool key_is_over(const struct key *key, time_t now) {
        return key->until != 0 && now >= key->until;
}

const struct key *keys_find(const struct keys *keys, const char *name, size_t length, time_t now) {
        for (unsigned i = 0; i < keys->n; i++)
                if (strlen(keys->key[i].name) == length && memcmp(keys->key[i].name, name, length) == 0)
                        return key_is_over(&keys->key[i], now) ? NULL : &keys->key[i];
        return NULL;
}

const struct key *keys_still_have(const struct keys *keys, const struct key *key, time_t now) {
        const struct key *found = keys_find(keys, key->name, strlen(key->name), now);

        return found != NULL && found->length == key->length &&
                               memcmp(found->secret, key->secret, key->length) == 0
                       ? found
                       : NULL;
}

/* Returns the range that holds this uid, the one that ends last if there are several. NULL: the key does not
 * speak for the uid. */
static const struct key_range *key_find_range(const struct key *key, uint64_t uid) {
        const struct key_range *found = NULL;

        for (unsigned i = 0; i < key->n_ranges; i++)
                if (uid >= key->range[i].first && uid <= key->range[i].last &&
                    (found == NULL || key->range[i].last > found->last))
                        found = &key->range[i];
        return found;
}

bool key_speaks_for(const struct key *key, uid_t uid) {
        return key->all_uids || key_find_range(key, uid) != NULL;
}

void key_uids(const struct key *key, char text[KEY_UIDS]) {
        size_t used = 0;

        strcpy(text, "*");
        for (unsigned i = 0; i < key->n_ranges; i++)
                used += (size_t)snprintf(text + used, KEY_UIDS - used, "%s%" PRIu32 "-%" PRIu32,
                                         i > 0 ? "," : "", key->range[i].first, key->range[i].last);
}

bool key_uids_cover(const char *uids, const char *others) {
        struct key mine = { 0 }, theirs = { 0 };

        if (!read_uids(uids, &mine) || !read_uids(others, &theirs))
                return false;
        for (unsigned i = 0; i < theirs.n_ranges && !mine.all_uids; i++)
                for (uint64_t uid = theirs.range[i].first; uid <= theirs.range[i].last;) {
                        const struct key_range *range = key_find_range(&mine, uid);

                        if (range == NULL)
                                return false;
                        uid = (uint64_t)range->last + 1;
                }
        return mine.all_uids || !theirs.all_uids;
}
