/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes what clients have sent. close() may wait: for the file system of the file (one in user space, or on
 * a network, need never answer), or, of a socket with SO_LINGER, for a peer. What such a descriptor is cannot
 * be asked without waiting either. So descriptors that nobody wants are closed by threads, one user's by one
 * at a time, and stay on that user's account until they are closed. What lies unread in a socket's queue is
 * closed with the socket: that can only wait where a signal helps. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/account.h"
#include "base/loop.h"

struct closer;

/* Beyond the quota: what is refused because its sender has enough has come all the same, and is soon closed.
 * More than that waits for something. */
#define CLOSER_SLACK 16u

typedef int (*closer_close_fn)(int fd); /* close(2), but in tests */

int closer_new(struct loop *loop, struct users *users, closer_close_fn fn, struct closer **ret);
/* Waits for threads only for a moment: what hangs is left to the end of the process. NULL is fine. */
struct closer *closer_free(struct closer *closer);

/* Takes the fd, in any case. 0, or QUOTA with *refusal: its sender has far too many, and must not go on
 * sending. */
int closer_take(struct closer *closer, int fd, uid_t uid, struct refusal *refusal);
/* Whether that was said of this user, and is still so. */
bool closer_is_overdrawn(const struct closer *closer, uid_t uid);

/* Between these two no system call waits for longer than some milliseconds, if a signal can end its
 * waiting. */
void closer_hurry(struct closer *closer);
void closer_calm(struct closer *closer);
/* Closes a socket in such a hurry. */
void closer_hang_up(struct closer *closer, int sock);
