/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a machine. Machines allocate nothing: the driver of one says how much it is to keep, asks how
 * many bytes that takes, and gives them, and later more, before a call that needs more. A request for which
 * there is no room is refused; a message for which there is none is dropped as if it had been lost. A node
 * hears orders about more tracks than it has room for, but enters no generation that has them.
 */
#pragma once

#include <stdint.h>

struct room {
        void *memory; /* the driver's; aligned like what malloc() returns */
        /* A node has at most LIMIT_SEATS. In the job of a coordinator LIMIT_WORLD of them can have a place,
         * or wait for one; LIMIT_LOCAL if all are on one node. */
        uint32_t members;
        uint32_t tracks; /* TRACK_STEP + 1 to LIMIT_TRACKS */
        uint32_t nodes;  /* addresses are below it: 1 to LIMIT_NODES */
};
