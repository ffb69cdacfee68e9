/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors to be offered as memory. */
#pragma once

#include <stdint.h>

/* "file", or else a memfd of `size` bytes with these seals, `fill` of them present. */
int fd_of_kind(const char *kind, uint64_t size, uint64_t fill, int seals);
