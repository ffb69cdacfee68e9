/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How strangers share what there is for strangers: places, and handshakes a second. A source is an IPv4
 * address, or the network of 64 bits of an IPv6 address, out of which one host can take as many addresses
 * as it likes. In the network of this end each IPv6 address is a source, or one neighbour would keep out
 * all other hosts there. Each source has a rate of its own; whose turn comes last longest ago is next; and
 * where there is no place left, who holds most gives one up. So a source that comes seldom is not kept out
 * by one that comes all the time. Pure: time comes in.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/pace.h"

#define SOURCE_KEY 17u     /* bytes: kind and address */
#define SHARE_SOURCES 256u /* that are remembered; those that hold a place always are */

struct share_source {
        uint8_t key[SOURCE_KEY];
        struct pace pace;
        unsigned held;   /* places */
        uint64_t seen;   /* when it came for the last time, */
        uint64_t served; /* and its last turn, counted over all sources */
};

struct share { /* zero-initialised: nobody has come yet */
        struct share_source source[SHARE_SOURCES];
        uint64_t turns;
};

/* The source of that address, which has connected to `local`. One that has not been seen for long, and that
 * holds nothing, may be forgotten for it. Fewer than SHARE_SOURCES may hold a place. */
unsigned share_find(struct share *share, const struct sockaddr_storage *address,
                    const struct sockaddr_storage *local, uint64_t now);
/* Whether one more connection of that source may wait for its handshake: `rate` of them a second. */
bool share_admits(struct share *share, unsigned source, uint64_t rate, uint64_t now);
/* Whether a connection of `a` comes before one of `b`, both of which wait. */
bool share_precedes(const struct share *share, unsigned a, unsigned b);
/* It is the turn of that source. */
void share_serve(struct share *share, unsigned source);
