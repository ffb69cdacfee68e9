/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of a trainer (data loader workers) inherit no connection: their copies of the fds are closed in
 * the moment of fork(), so that the daemon sees the trainer's end, and every call on an inherited handle says
 * FORKED.
 */
#pragma once

#include <stdint.h>

struct gradsync;

/* Number of forks between the first process that used the library and this one. */
uint32_t fork_epoch(void);
/* Adds to, and removes from, the registry of open handles. 0, or a positive errno if the handlers of fork()
 * could not be installed. */
int fork_register(struct gradsync *gs);
void fork_unregister(struct gradsync *gs);
