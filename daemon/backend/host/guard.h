/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member can give pages of shared memory back to the kernel at any time (FALLOC_FL_PUNCH_HOLE). The process
 * that touches them next gets new ones on its own account. So that this is never the daemon, its mappings of
 * such memory are registered with userfaultfd(2): an access to a page that is missing allocates nothing and
 * ends in SIGBUS, which ends the call in which it happened. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Returns a descriptor, or a negative errno if the system does not let this process have one. */
int guard_open(void);
/* Guards a mapping of a memfd until it is unmapped: an access to a missing page allocates nothing. It ends
 * the guard_call() in which it happens; outside of one it ends the process. 0 or a negative errno. */
int guard_add(int guard, void *map, size_t bytes);
/* Calls fn(data), which must leave nothing behind that has to be undone, such as a lock. Returns NULL; or the
 * address of the missing page at which fn() has ended. */
const void *guard_call(void (*fn)(void *data), void *data);
