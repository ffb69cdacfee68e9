/* SPDX-License-Identifier: Apache-2.0 */
/* The socket behind metrics_listen. */
#pragma once

#include <stddef.h>

/* Listens at an address in numbers with a port. On failure a sentence for people that names the key is in
 * `error`. */
int port_listen(const char *address, int *ret, char *error, size_t size);
