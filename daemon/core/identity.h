/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts that a daemon remembers from one run to the next, so that no other daemon takes an old message for a
 * new one, whatever the clock says: its id, the number of its starts, the terms that it has used, and its
 * place in a cluster. They lie in one file of the daemon's own. A fact is on the disk before it is used, and
 * writing it needs no further space. As long as the object lives no other daemon can have that file.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define IDENTITY_NODE 16u /* bytes */
#define IDENTITY_NO_PLACE UINT32_MAX

struct identity;

/* Finds the directory and the name of a file of the daemon: `what` in the directory that the service manager
 * gives; else a file beside the socket, named after that. *ret_directory and *ret_name are for free(). 0 or
 * -ENOMEM. */
int identity_place(const char *given, const char *socket, const char *what, char **ret_directory,
                   char **ret_name);

/* Counts this start. 0 and *ret; 1 and a sentence in `error` if there is no place where the file can be
 * written: the daemon has no identity then; or a negative errno and a sentence, if another daemon has the
 * file, or what is there cannot be relied upon. */
int identity_open(const char *directory, const char *name, struct identity **ret, char *error, size_t size);
struct identity *identity_close(struct identity *identity);

const uint8_t *identity_node(const struct identity *identity);
uint64_t identity_instance(const struct identity *identity); /* 1 in the first run */
/* A counter of terms that no call in any run has given: 0 and *ret, or a negative errno if that could not be
 * put on the disk. */
int identity_take_term(struct identity *identity, uint64_t *ret);

/* The address that its coordinator gave it, in this or an earlier run, and the number of its host;
 * IDENTITY_NO_PLACE: none did. */
uint32_t identity_address(const struct identity *identity);
uint32_t identity_host(const struct identity *identity);
/* 0, or a negative errno if that could not be put on the disk: the former place counts. */
int identity_set_place(struct identity *identity, uint32_t address, uint32_t host);
