// SPDX-License-Identifier: Apache-2.0
/* Names of users: see user.h. */
#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/base/format.h"
#include "client/cli/base/user.h"
#include "proto/cleanup.h"

/* A list may have a thousand rows of one user, and each lookup may go over the network. */
#define USERS_KEPT 64u

static struct user_known {
        bool valid;
        uint32_t uid;
        char name[USER_SIZE]; /* "": it has none */
} users_known[USERS_KEPT];

/* "" if the user has no name, or a longer one. */
static const char *user_name(uint32_t uid) {
        struct user_known *known = &users_known[uid % USERS_KEPT];

        if (known->valid && known->uid == uid)
                return known->name;
        const struct passwd *entry = getpwuid(uid);
        *known = (struct user_known){ .valid = true, .uid = uid };
        if (entry && entry->pw_name && strlen(entry->pw_name) < sizeof known->name)
                strcpy(known->name, entry->pw_name);
        return known->name;
}

char *user_show(char out[USER_SIZE], uint32_t uid) {
        const char *name = user_name(uid);

        if (*name)
                strcpy(out, name);
        else
                snprintf(out, USER_SIZE, "%u", uid);
        return out;
}

char *user_show_both(char out[USER_SIZE], uint32_t uid) {
        const char *name = user_name(uid);

        snprintf(out, USER_SIZE, *name ? "uid %u (%.64s)" : "uid %u", uid, name);
        return out;
}

static bool user_is_number(const char *text, size_t length) {
        return strspn(text, "0123456789") >= length;
}

int user_resolve_job(const char *job, char **ret) {
        const char *slash = strchr(job, '/');
        size_t length = slash ? (size_t)(slash - job) : 0;

        *ret = NULL;
        if (length == 0 || user_is_number(job, length)) {
                *ret = strdup(job);
                return *ret ? 0 : -ENOMEM;
        }
        _cleanup_(freep) char *name = strndup(job, length);
        errno = 0;
        const struct passwd *entry = name ? getpwnam(name) : NULL;
        if (!name)
                return -ENOMEM;
        /* For an unknown name, other errors of getpwnam() depend on the source of the names: they count as
         * "no such user". */
        if (!entry)
                return errno == EIO || errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno
                                                                                             : -ENOENT;
        *ret = format_new("%u%s", (unsigned)entry->pw_uid, slash);
        return *ret ? 0 : -ENOMEM;
}
