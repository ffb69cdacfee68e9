/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a name service on a thread of its own, because the answer may take long. Loop thread only. */
#pragma once

#include "base/loop.h"
#include "link/address.h"

struct resolver;

/* Called once: with 0 and the address, or with a negative errno and the reason in `error`. */
typedef void (*resolver_fn)(void *data, int r, const struct sockaddr_storage *address, socklen_t length,
                            const char *error);

/* 0 or a negative errno. */
int resolver_new(struct loop *loop, const struct address *address, resolver_fn fn, void *data,
                 struct resolver **ret);
/* Forgets the question. Allowed in the callback, or before it; then the callback does not come. NULL is
 * fine. */
struct resolver *resolver_free(struct resolver *resolver);
