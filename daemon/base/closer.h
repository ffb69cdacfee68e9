/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes the descriptors that clients have sent. close() may wait: for the file system of a file, which may
 * lie in user space or on a network and never answer, or for the peer of a socket with SO_LINGER. The kind of
 * such a descriptor cannot be found out without waiting either. So descriptors that nobody wants are closed
 * by threads, those of one user by one thread at a time, and stay charged to that user until they are closed.
 * What lies unread in a socket's queue is closed with the socket; that can only wait where a signal helps.
 * Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/account.h"
#include "base/loop.h"

struct closer;

/* Descriptors that a user may have beyond its quota: one that comes with a refused request has arrived all
 * the same and is soon closed. If there are more, they wait for something. */
#define CLOSER_SLACK 16u

typedef int (*closer_close_fn)(int fd); /* close(2), but in tests */

int closer_new(struct loop *loop, struct users *users, closer_close_fn fn, struct closer **ret);
/* Waits for threads only for a moment: what hangs is left to the end of the process. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Takes the fd in any case. 0, or QUOTA with *refusal: its sender has far too many and must not go on
 * sending. */
int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal);
/* Whether this user has too many now. */
bool closer_is_overdrawn(const struct closer *closer, uid_t uid);

/* Between these two no system call waits for longer than some milliseconds, if a signal can end its
 * waiting. */
void closer_hurry(struct closer *closer);
void closer_calm(struct closer *closer);
/* Closes a socket in such a hurry. */
void closer_hang_up(struct closer *closer, int sock);
