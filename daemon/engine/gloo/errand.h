/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the daemon and a helper process over their socket, in C and in C++: structs of fixed
 * layout in packets of their own, between two programs of one build. A helper has one communicator.
 */
#pragma once

#include <stdint.h>

#define ERRAND_SOCKET 3 /* the helper's descriptor of the socket */
#define ERRAND_VALUES 16u
#define ERRAND_NODES 64u         /* most nodes of a communicator: see gloo.h */
#define ERRAND_TABLE (64u << 10) /* bytes of a table */
#define ERRAND_TEXT 512u
#define ERRAND_LANES 8u
#define ERRAND_STREAMS 2u /* most streams of a lane */

enum errand_kind {
        /* to the helper: */
        ERRAND_BUILD = 1, /* the first message */
        ERRAND_LEARN,     /* a table follows the struct */
        ERRAND_MEMORY,    /* comes with a descriptor */
        ERRAND_FORGET,
        ERRAND_LAUNCH,
        ERRAND_ASK, /* asks whether the helper listens: it answers at once, whatever is under way */
        /* from it: */
        ERRAND_PUBLISH, /* a table follows the struct */
        ERRAND_BUILT,
        ERRAND_DONE,
        ERRAND_ANSWER, /* the answer to ASK */
        ERRAND_NOTE,   /* a text for the log */
        ERRAND_BROKEN, /* no collective that was launched is done any more */
};

enum errand_payload { ERRAND_REDUCE, ERRAND_VOTE, ERRAND_ZERO_VOTE };

struct errand {
        uint32_t kind;
        uint32_t lane;
        uint64_t sequence;
        uint64_t memory;
        union {
                struct {
                        uint32_t n_nodes, self, n_lanes, n_streams; /* streams of each lane */
                        uint32_t silence; /* ms until a peer that does not acknowledge is given up */
                        uint32_t timeout; /* ms for all connections to be made */
                        char address[64];
                } build;
                struct {
                        uint32_t rank, bytes;
                } learn;
                struct {
                        uint64_t bytes;
                } memory_of;
                struct {
                        uint32_t payload; /* enum errand_payload */
                        uint32_t dtype, reduce, root;
                        uint64_t input, output, elements;
                        uint64_t value[ERRAND_VALUES];
                } launch;
                struct {
                        uint32_t bytes;
                } publish;
                struct {
                        uint64_t value[ERRAND_VALUES];
                } done;
                struct { /* BUILT, BROKEN: ranks that could not be reached, if any; NOTE: none */
                        uint32_t n;
                        uint32_t rank[ERRAND_NODES];
                        char text[ERRAND_TEXT];
                } nodes;
        };
};
