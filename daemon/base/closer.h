/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes descriptors that clients have sent, and connections of clients, in which such descriptors may lie
 * unread. close() may take long, as for a file of gigabytes in memory. It may also wait: for the file system
 * of a file, which may be in user space or on a network and never answer, or for the peer of a socket with
 * SO_LINGER. The kind of a descriptor cannot be found out without waiting either. So threads close them: for
 * each user one sent descriptor and one connection at a time. All stay charged to that user until they are
 * closed. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/account.h"
#include "base/list.h"
#include "base/loop.h"

struct closer;
struct user;

/* Number of descriptors that a user may have beyond its quota. A descriptor that comes with a refused request
 * has arrived all the same, and is soon closed. If there are more, their closing waits for something. */
#define CLOSER_SLACK 16u

struct closer_queue {        /* the lists are valid while there are entries */
        struct list ready;   /* closer->ready, while it has entries and no thread has any of them */
        struct list entries; /* those that a thread has come first */
        unsigned n;          /* number of entries */
        bool of_connections;
};

struct closer_lane { /* of one user; zero-initialised: no entries */
        struct closer_queue sent, connections;
        unsigned overdrawn; /* number of entries beyond the user's quota */
};

typedef int (*closer_close_fn)(int fd); /* close(2), except in tests */

/* Up to `at_once` users can each block their threads, and delay other users by some milliseconds. 0 or a
 * negative errno. */
int closer_new(struct loop *loop, struct users *users, unsigned at_once, closer_close_fn fn,
               struct closer **ret);
/* Waits for the threads only for a moment: a descriptor whose close() hangs is left to the end of the
 * process. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Closes `fd` soon; takes it in any case. Returns 0, or QUOTA with *refusal if the sender has more than
 * CLOSER_SLACK descriptors beyond its quota and must not go on sending. */
int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal);
/* Whether this user has more than CLOSER_SLACK descriptors beyond its quota now. */
bool closer_is_overdrawn(const struct user *user);

/* Ends the connection of a client, and closes it soon with all that lies unread in it. Takes `sock`. The
 * client sees the end at once. */
void closer_hang_up(struct closer *closer, int sock, uid_t uid);

/* Closes a descriptor that belongs to no client, such as a socket that awaits no connection any more. Takes
 * no longer than some milliseconds if a signal can end the wait. */
void closer_close_at_once(struct closer *closer, int fd);
