/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table is a list: there are few users, however many clients they have, so a walk is enough. A user of
 * many uids cannot make the list long without holding something under each, and quotas bound that.
 */
#include "user.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int users_new(const uint64_t limits[ACCOUNT_SLOTS], struct users **ret) {
        struct users *users = calloc(1, sizeof(*users));

        if (!users)
                return -ENOMEM;
        list_init(&users->list);
        memcpy(users->limits, limits, sizeof(users->limits));
        *ret = users;
        return 0;
}

static void user_free(struct user *user) {
        assert(user->references == 0);
        user->users->strangers--;
        list_remove(&user->link);
        free(user);
}

struct users *users_free(struct users *users) {
        struct user *user, *spare;

        if (!users)
                return NULL;
        list_for_each_safe(user, spare, &users->list, link)
                user_free(user);
        free(users);
        return NULL;
}

void users_sweep(struct users *users, uint64_t now) {
        struct user *user, *spare;

        list_for_each_safe(user, spare, &users->list, link)
                if (user->references == 0 && token_bucket_is_full(&user->pace, now))
                        user_free(user);
}

/* Forgets the user that has stayed away for longest, among those that nothing refers to. */
static void users_forget_one(struct users *users) {
        struct user *user;

        list_for_each(user, &users->list, link)
                if (user->references == 0) {
                        user_free(user);
                        return;
                }
}

struct user *user_find(const struct users *users, uid_t uid) {
        struct user *user;

        list_for_each(user, &users->list, link)
                if (user->uid == uid)
                        return user;
        return NULL;
}

struct user *user_get(struct users *users, uid_t uid) {
        struct user *user = user_find(users, uid);

        if (user) {
                list_remove(&user->link);
        } else {
                user = calloc(1, sizeof(*user));
                if (!user)
                        return NULL;
                user->users = users;
                user->uid = uid;
                line_queue_init(&user->line);
                if (users->strangers == USERS_STRANGERS)
                        users_forget_one(users);
                users->strangers++;
        }
        list_append(&users->list, &user->link);
        return user;
}

bool user_is_trusted(const struct user *user, uid_t uid) {
        return uid == 0 || uid == geteuid() || (user != NULL && user->operators > 0);
}

enum line_class user_class(const struct user *user) {
        if (user_is_trusted(user, user->uid))
                return LINE_OPERATORS;
        return user->running > 0 ? LINE_RUNNING : LINE_OTHERS;
}

void user_ref(struct user *user) {
        if (user->references++ == 0)
                user->users->strangers--;
}

void user_unref(struct user *user) {
        struct users *users = user->users;

        assert(user->references > 0);
        if (--user->references == 0 && users->strangers++ == USERS_STRANGERS)
                users_forget_one(users);
}
