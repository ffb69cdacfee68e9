/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of all kinds, to be offered as memory. */
#pragma once

#include <stdint.h>

/* "file", "directory", "pipe", "socket", "huge", or else a memfd of `size` bytes with these seals, `fill` of
 * them present. Negative if the machine has none. */
int fd_of_kind(const char *kind, uint64_t size, uint64_t fill, int seals);
