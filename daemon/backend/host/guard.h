/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member can give pages of shared memory back to the kernel at any time (FALLOC_FL_PUNCH_HOLE), and whoever
 * touches them next gets new ones on its own account. So that this is never the daemon, its mappings of such
 * memory are registered with userfaultfd(2): an access to a page that is missing allocates nothing and ends
 * in SIGBUS, which ends the call in which it happened. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A descriptor, or a negative errno: then the system does not let this process have one. */
int guard_open(void);
/* From now on until it is unmapped nothing is allocated in this mapping of a memfd by who accesses it through
 * guard_call(); an access outside of that ends the process. 0 or a negative errno. */
int guard_add(int guard, void *map, size_t bytes);
/* Calls fn(data), which must leave nothing behind that has to be undone, such as a lock. NULL; or the address
 * of the page that was missing, where fn() has ended. */
const void *guard_call(void (*fn)(void *data), void *data);
