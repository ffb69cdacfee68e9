/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What daemons of a cluster have to remember of one another from one run to the next: a coordinator, which
 * daemon has which address; a node's daemon, which address it was given. Text files in the daemon's own
 * directory, replaced as a whole, and on the disk before anything in them is used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROSTER_NODE 16u /* bytes of a node id */
#define ROSTER_HOST 64u /* characters of a host's id */

struct roster;

/* By what a daemon was trusted when it was here: the name of its key, or KEY_NONE, and the uids that it
 * spoke for (link/key.h). */
struct roster_owner {
        const char *key, *uids;
};

/* Reads the file NAME.nodes in `directory`, if it is there. 0; or a negative errno and a sentence in `error`:
 * what is there cannot be relied upon, or there is no memory. */
int roster_open(const char *directory, const char *name, struct roster **ret, char *error, size_t size);
struct roster *roster_free(struct roster *roster); /* NULL is fine */

/* The address of that daemon, and the number of its host: the lowest address of any daemon there. One that is
 * new gets `claimed`, if nobody else has that, or the lowest free one. Its id is the owner's from now on. 0;
 * -ENOSPC: there are too many; or another negative errno if it could not be written down. */
int roster_place(struct roster *roster, const uint8_t node[ROSTER_NODE], const char *host,
                 const struct roster_owner *owner, uint32_t claimed, uint32_t *ret_address,
                 uint32_t *ret_host);
/* Whose the id of that daemon is. False: it is not known. Valid until the next roster_place(). */
bool roster_find_owner(const struct roster *roster, const uint8_t node[ROSTER_NODE],
                       struct roster_owner *ret);

/* The address that an earlier run was given, or UINT32_MAX; and the number of the host. */
void roster_recall(const char *directory, const char *name, uint32_t *ret_address, uint32_t *ret_host);
/* 0 or a negative errno. */
int roster_remember(const char *directory, const char *name, uint32_t address, uint32_t host);
