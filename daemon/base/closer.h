/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes what clients have sent, and their connections, in which such things may lie unread. close() may take
 * long, as for a file of gigabytes in memory, and it may wait: for the file system of a file, which may lie
 * in user space or on a network and never answer, or for the peer of a socket with SO_LINGER. The kind of
 * such a descriptor cannot be found out without waiting either. So they are closed by threads: of a user one
 * thing and one connection at a time. All stay charged to that user until they are closed. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/account.h"
#include "base/loop.h"

struct closer;
struct user;

/* Descriptors that a user may have beyond its quota: one that comes with a refused request has arrived all
 * the same and is soon closed. If there are more, they wait for something. */
#define CLOSER_SLACK 16u

typedef int (*closer_close_fn)(int fd); /* close(2), but in tests */

/* So many users can make it wait without delaying others. */
int closer_new(struct loop *loop, struct users *users, unsigned at_once, closer_close_fn fn,
               struct closer **ret);
/* Waits for threads only for a moment: what hangs is left to the end of the process. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Takes the fd in any case. 0, or QUOTA with *refusal: its sender has far too many and must not go on
 * sending. */
int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal);
/* Whether this user has too many now. */
bool closer_is_overdrawn(const struct user *user);

/* Takes the connection of a client, whatever it has sent on it: the client sees its end at once. */
void closer_hang_up(struct closer *closer, int sock, uid_t uid);

/* Closes what is no client's, as a socket on which nobody is awaited any more, without waiting for longer
 * than some milliseconds if a signal can end that. */
void closer_close_at_once(struct closer *closer, int fd);
