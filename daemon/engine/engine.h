/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of an engine, which exchanges memory of this daemon (staging) between the nodes of a job. One
 * constant table of functions per engine. An engine knows communicators, lanes, bytes and element types, and
 * nothing of jobs, steps or members. It never touches an arena.
 *
 * All functions are called on the loop thread and never wait. Their results are events: dispatch() delivers
 * them, never the call itself, and they carry ids that the caller has chosen.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct engine;

/* A communicator. Its nodes are ranked in the order of their addresses in the job, which is the same on each
 * node. */
struct engine_build {
        uint64_t comm;          /* id, unique among communicators that are neither dropped nor aborted */
        const char *name;       /* the same on all of its nodes, and never used again for another one */
        uint32_t n_lanes;       /* collectives of different lanes do not wait for one another */
        uint32_t n_nodes, self; /* self: rank of this node */
        const uint32_t *node;   /* addresses, by rank */
        /* Id of the communicator that the job had before, if it is neither dropped nor aborted; or 0. Nothing
         * is launched on that one any more, and this one may be made of it. */
        uint64_t older;
};

/* Staging, as the backend that allocated it exports it. */
struct engine_memory {
        void *address; /* as the backend's device sees it */
        int fd;        /* its descriptor, for an engine in a process of its own; the caller's; or -1 */
        uint64_t bytes;
};

enum engine_reduce { ENGINE_SUM, ENGINE_MIN, ENGINE_MAX, ENGINE_PROD, ENGINE_COPY };

/*
 * The payload of a collective. On every node the output becomes the reduction of all inputs, element by
 * element (COPY: the input of `root`, a rank of the communicator). Integers wrap; min and max propagate NaN.
 * The engine chooses the order of the additions, which gives the same bits on all nodes. Input and output are
 * the same range or disjoint ranges. No other writer touches either until done() is called, except that
 * outputs of collectives of one lane may overlap, together with inputs that are in the same range.
 */
struct engine_piece {
        uint64_t memory;        /* id of the memory */
        uint64_t input, output; /* offsets in the memory, in bytes */
        uint64_t elements;
        unsigned dtype; /* WIRE__DTYPE__… */
        enum engine_reduce reduce;
        uint32_t root;
        /* `tail_bytes` bytes, or none, in memory that the CPU and the device reach. The input ends with the
         * bytes that are there from launch() on. When done() is called, the end of the output is there. */
        void *tail;
        uint32_t tail_bytes;
};

#define ENGINE_WINDOW 8u /* collectives that a lane may have under way */
#define ENGINE_VALUES 16u
#define ENGINE_TABLE (64u << 10) /* bytes that a node can publish for a communicator */

enum engine_kind {
        ENGINE_PAYLOAD,
        ENGINE_VOTE, /* for each of its values every node gets the smallest one of all nodes */
        /* Takes part in a collective that the others launch as payload or, with 0 elements, as vote:
         * contributes its input, or zeros, and its result is not used. */
        ENGINE_FILLER,
};

/*
 * A collective. Those of a lane begin in the order of their sequence numbers, the first of which is 1 in each
 * communicator. Several may be under way. Nodes that launch different collectives under the same number
 * (apart from fillers) never get a result of both: they wait, or, if only the sizes differ, one of them
 * reports the others as unreachable. The caller compares collectives before it launches them.
 */
struct engine_launch {
        uint64_t comm;
        uint32_t lane;
        uint64_t sequence;
        enum engine_kind kind;
        uint64_t value[ENGINE_VALUES];
        struct engine_piece piece;
};

/* Events, delivered by dispatch(). None of them may close the engine. */
struct engine_events {
        /* A table that every other node has to learn of this one before the communicator can work. Comes at
         * most once for each communicator, and before built(). The bytes are valid during the call. */
        void (*publish)(void *owner, uint64_t comm, const void *table, size_t bytes);
        /* The communicator works, or, if there are nodes that it cannot reach, it does not. */
        void (*built)(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n);
        /* A collective is done. Comes in order on each lane. The bytes of no node depend on this node's input
         * any more. `value` is valid during the call, and undefined for a payload. */
        void (*done)(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value);
        /* These nodes do not answer, and no collective of the communicator is done any more: the caller has
         * to abort it. A failure of the engine itself names all other nodes. */
        void (*unreachable)(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n);
        /* The engine's last access to memory for the communicator has ended. */
        void (*aborted)(void *owner, uint64_t comm);
        /* A memory is shared, or unshared: see share() and unshare(). Comes within a bounded time. */
        void (*shared)(void *owner, uint64_t memory);
        void (*unshared)(void *owner, uint64_t memory);
};

/* A description of an engine, for people. The engine owns the texts. */
struct engine_description {
        const char *library;   /* path of the library that it has loaded; NULL if none */
        const char *abilities; /* abilities that other versions of it may lack; NULL if none differ */
};

#define ENGINE_PEERS 64u

struct engine_peer {
        uint32_t node;      /* address */
        bool same_host;     /* it is on the same host as this node */
        char transport[24]; /* as the engine calls it; "": not known */
};

/* A view of a communicator that works, for people. */
struct engine_view {
        uint64_t took; /* microseconds that it took to be made */
        uint32_t n_peers;
        struct engine_peer peer[ENGINE_PEERS];
};

struct engine_ops {
        const char *name;
        uint32_t kin;   /* only nodes with the same number exchange: 0, or NCCL's version, 22809 for 2.28.9 */
        uint32_t most;  /* most communicators that may work at a time: more block each other; 0: any number */
        uint32_t lanes; /* most lanes of a communicator that are of use; 0: any number */
        /* All nodes have to agree before they launch. A collective that is launched before all nodes can
         * launch it is in the way of others, and so is another order of the collectives of several
         * communicators on another node. */
        bool agreed;
        const char *(*version)(const struct engine *engine);

        /* describe() and view() are NULL if there is nothing to tell. view() returns false if the
         * communicator does not work, or is not known. */
        void (*describe)(const struct engine *engine, struct engine_description *ret);
        bool (*view)(struct engine *engine, uint64_t comm, struct engine_view *ret);
        /* Returns the communicator's process if it has not answered for a while, and since when; else 0. NULL
         * if communicators have no processes. */
        pid_t (*silent)(struct engine *engine, uint64_t comm, uint64_t *ret_since);

        /* Readable when dispatch() has something to deliver. */
        int (*fd)(const struct engine *engine);
        void (*dispatch)(struct engine *engine);

        /* Makes memory known in which pieces may lie, under an id that the caller chooses. 0; 1: pieces may
         * lie in it once shared() has been called; or a negative errno. */
        int (*share)(struct engine *engine, uint64_t memory, const struct engine_memory *what);
        /* Withdraws a memory that no collective uses. True: the engine does not use it either. False: it does
         * until unshared() is called. */
        bool (*unshare)(struct engine *engine, uint64_t memory);

        /* Whether collectives may do this; NULL: they may do all of it. */
        bool (*can)(const struct engine *engine, unsigned dtype, enum engine_reduce reduce);
        /* Sets the address, a number, under which other nodes reach this one, for communicators built from
         * now on. NULL if the engine finds out by itself. */
        void (*set_address)(struct engine *engine, const char *address);
        /* 0: built() will be called. Negative errno: nothing happened. */
        int (*build)(struct engine *engine, const struct engine_build *build);
        /* Takes the table that the node of that rank has published for the communicator of the same name.
         * Called once or more for each other node, in any order. 0, or -EINVAL if this engine cannot have
         * published it. */
        int (*learn)(struct engine *engine, uint64_t comm, uint32_t rank, const void *table, size_t bytes);
        /* 0: done() will be called, unless the communicator is aborted. Negative errno: nothing happened. */
        int (*launch)(struct engine *engine, const struct engine_launch *launch);
        /* Ends a communicator on which all that was launched is done. The id is free at once, and no event of
         * the communicator comes any more. */
        void (*drop)(struct engine *engine, uint64_t comm);
        /* Ends a communicator in any state. aborted() is called within a bounded time, and no other event
         * before it; then the id is free. */
        void (*abort)(struct engine *engine, uint64_t comm);
};

struct engine {
        const struct engine_ops *ops;
        /* Set by the caller before the first communicator is built. */
        const struct engine_events *events;
        void *owner;
};
