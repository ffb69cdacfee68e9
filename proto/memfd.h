/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of memory that one process offers another one to read and write: a memfd whose size can never
 * change, so that no access goes past its end, and which has all of its pages, so that no access allocates
 * one. A descriptor that is offered is checked here before anything else is done with it. No check waits:
 * none asks the file system, which may never answer, for the kind of a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names of the memfds that a daemon makes for members. */
#define MEMFD_ARENA "gradsync-arena"
#define MEMFD_CONTROL "gradsync-control"

struct memfd_file {
        uint64_t device, inode; /* identify the file, whatever descriptors lead to it */
        uint64_t size;
};

/* Makes such a memfd: sealed against resizing and further seals, open for writing, without a page. The fd, or
 * a negative errno. */
int memfd_new(const char *name, uint64_t bytes);

/*
 * Whether `bytes` bytes from `offset` of the file can be mapped for reading and writing, for any length of
 * time: the file is a memfd, not of huge pages, open for both, with F_SEAL_SHRINK and F_SEAL_GROW, and not
 * sealed against writing. `offset` is a multiple of the machine's pages. 0 with *ret; WIRE__CODE__INVALID
 * with one sentence in `text`; or a negative errno.
 */
int memfd_check(int fd, uint64_t offset, uint64_t bytes, struct memfd_file *ret, char *text, size_t size);

/* Whether this daemon or another one has made the memfd: then it belongs to a plan already. A process cannot
 * remove the name by which this is known. */
bool memfd_is_ours(int fd);

/* Whether at most a huge page lies after the end of the file, where no check looks for memory. The same
 * results. */
int memfd_check_end(int fd, const struct memfd_file *file, char *text, size_t size);

/*
 * Whether every page of the whole file is there, in memory or swapped out: only the number of a file's pages
 * is known without waiting for other users of the file. 0; WIRE__CODE__INVALID with `text`; or a negative
 * errno.
 */
int memfd_check_present(int fd, const struct memfd_file *file, char *text, size_t size);

/* Whether the pages are still there. The same results. Takes less than a microsecond. */
int memfd_check_kept(int fd, const struct memfd_file *file, char *text, size_t size);
