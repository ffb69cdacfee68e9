/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a machine. Machines allocate nothing: the driver of one says how much it is to keep, asks
 * how many bytes that takes, and gives them, and later more, before a call that needs more. What there is no
 * room for is refused, or, if a message brings it, dropped as if it had been lost; a node hears orders about
 * more tracks than it has room for, and enters no generation that has them.
 */
#pragma once

#include <stdint.h>

struct room {
        void *memory; /* the driver's; aligned like what malloc() returns */
        /* Of a node, at most LIMIT_SEATS. Of a coordinator's job: LIMIT_WORLD of them can have a place, or
         * wait for one; LIMIT_LOCAL where all are on one node. */
        uint32_t members;
        uint32_t tracks; /* TRACK_STEP + 1 to LIMIT_TRACKS */
        uint32_t nodes;  /* addresses are below it: 1 to LIMIT_NODES */
};
