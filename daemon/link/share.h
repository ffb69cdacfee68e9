/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides places, and handshakes in a second, among the sources of strangers. A source is an IPv4 address, or
 * the 64-bit network of an IPv6 address, in which one host can take as many addresses as it likes. In the
 * network of this end each IPv6 address is a source, because otherwise one neighbour would keep out all other
 * hosts there. Each source has a rate of its own. The source whose last turn was longest ago is next. If no
 * place is left, the source that holds most gives one up. So a source that connects seldom is not kept out by
 * one that connects all the time. Pure: the caller passes the time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/token_bucket.h"

#define SOURCE_KEY 17u     /* bytes: kind and address */
#define SHARE_SOURCES 256u /* sources that are remembered; those that hold a place always are */

struct share_source {
        uint8_t key[SOURCE_KEY];
        struct token_bucket pace;
        unsigned held;   /* number of places */
        uint64_t seen;   /* when it last connected */
        uint64_t served; /* number of its last turn, counted over all sources */
};

struct share { /* zero-initialised: no source has connected yet */
        struct share_source source[SHARE_SOURCES];
        uint64_t turns;
};

/* Returns the source of that address, which has connected to `local`. A source that has not been seen for
 * long, and that holds no place, may be forgotten for it. Fewer than SHARE_SOURCES sources may hold a
 * place. */
unsigned share_find(struct share *share, const struct sockaddr_storage *address,
                    const struct sockaddr_storage *local, uint64_t now);
/* Whether one more connection of that source may wait for its handshake: `rate` of them in a second. */
bool share_admits(struct share *share, unsigned source, uint64_t rate, uint64_t now);
/* Whether a connection of `a` comes before one of `b`, if both wait. */
bool share_precedes(const struct share *share, unsigned a, unsigned b);
/* Notes that the source has its turn. */
void share_serve(struct share *share, unsigned source);
