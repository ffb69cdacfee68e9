/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of an engine: it exchanges memory of this daemon (staging) between the nodes of a job. One
 * constant table of functions per engine. It knows communicators, lanes, bytes and element types, nothing of
 * jobs, steps or members, and it never touches an arena.
 *
 * All functions are called on the loop thread and never wait. What they lead to is delivered by dispatch(),
 * never by the call itself, and carries ids that the caller has chosen.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct engine;

/* A communicator. Its nodes are ranked in the order of their addresses in the job, the same on each of them.
 */
struct engine_build {
        uint64_t comm;    /* id: unique among those of this engine that are neither dropped nor aborted */
        const char *name; /* the same on all of its nodes, and never used again for others */
        uint32_t n_lanes; /* collectives of different lanes do not wait for one another */
        uint32_t on_host; /* bit: a lane of which all pieces lie in memory of the host */
        uint32_t dialect; /* in which its nodes exchange: one that the engines of all of them know */
        uint32_t n_nodes, self; /* self: rank of this one */
        const uint32_t *node;   /* addresses, by rank */
        /* Id of the one that the job had before, if it is neither dropped nor aborted; or 0. Nothing is
         * launched on it any more, and this one may be made of it. */
        uint64_t older;
};

/* Staging, as the backend that allocated it exports it. */
struct engine_memory {
        void *address; /* as the backend's device sees it */
        bool on_host;  /* that device is the CPU */
        int fd;        /* of it, for an engine in a process of its own; stays the caller's; or -1 */
        uint64_t bytes;
};

enum engine_reduce { ENGINE_SUM, ENGINE_MIN, ENGINE_MAX, ENGINE_PROD, ENGINE_COPY };

/*
 * What one collective combines: on every node the output becomes the reduction of all inputs, element by
 * element (COPY: the input of `root`, a rank of the communicator). Integers wrap; min and max propagate NaN.
 * The order of the additions is the engine's, and gives the same bits on all nodes. Input and output are the
 * same range or disjoint ones; nobody else writes to either until done() is called, except that outputs of
 * collectives of one lane may overlap, together with such inputs as are in the same range.
 */
struct engine_piece {
        uint64_t memory;        /* id */
        uint64_t input, output; /* bytes from its beginning */
        uint64_t elements;
        unsigned dtype; /* WIRE__DTYPE__… */
        enum engine_reduce reduce;
        uint32_t root;
        /* `tail_bytes` bytes, or none, in memory that CPU and device reach: the input ends with what they
         * hold from launch() on, and when done() is called they hold the end of the output. */
        void *tail;
        uint32_t tail_bytes;
};

#define ENGINE_WINDOW 8u /* collectives that a lane may have under way */
#define ENGINE_VALUES 16u
#define ENGINE_TABLE (64u << 10) /* bytes that a node can publish for a communicator */

enum engine_kind {
        ENGINE_PAYLOAD,
        ENGINE_VOTE,   /* of each of its values every node hears the smallest one */
        ENGINE_FILLER, /* takes part in what the others launch as payload, or with 0 elements as vote: it
                          contributes its input, or zeros, and nobody uses what comes of it */
};

/* Collectives of a lane begin in the order of their sequence numbers, the first of which is 1 in each
 * communicator; several may be under way. Nodes that launch different ones under the same number (apart from
 * fillers) are never given a result of both: they wait, or, where only the sizes differ, one of them reports
 * the others as unreachable. The caller compares what it launches before. */
struct engine_launch {
        uint64_t comm;
        uint32_t lane;
        uint64_t sequence;
        enum engine_kind kind;
        uint64_t value[ENGINE_VALUES];
        struct engine_piece piece;
};

/* Delivered by dispatch(). None of them may call the engine's close(). */
struct engine_events {
        /* What every other node has to learn of this one before the communicator can work, at most once for
         * each communicator and before built(). The bytes are valid during the call. */
        void (*publish)(void *owner, uint64_t comm, const void *table, size_t bytes);
        /* The communicator works, or, if there are nodes that it cannot reach, it does not. */
        void (*built)(void *owner, uint64_t comm, const uint32_t *unreachable, uint32_t n);
        /* In order on each lane. No node's bytes depend on this node's input any more. `value` is valid
         * during the call, and says nothing about a payload. */
        void (*done)(void *owner, uint64_t comm, uint32_t lane, uint64_t sequence, const uint64_t *value);
        /* These nodes do not answer, and nothing of the communicator is done any more: it is to be aborted. A
         * failure of the engine itself names all the others. */
        void (*unreachable)(void *owner, uint64_t comm, const uint32_t *nodes, uint32_t n);
        /* The engine's last access to memory for its sake has ended. */
        void (*aborted)(void *owner, uint64_t comm);
        /* Of memory, see share() and unshare(): within a bounded time. */
        void (*shared)(void *owner, uint64_t memory);
        void (*unshared)(void *owner, uint64_t memory);
};

/* Of an engine, for people. Texts are the engine's. */
struct engine_description {
        const char *library;   /* path of what it has loaded; NULL: nothing */
        const char *abilities; /* of it, that others may not have; NULL: there are no differences */
};

#define ENGINE_PEERS 64u

struct engine_peer {
        uint32_t node;      /* address */
        bool same_host;     /* as this one */
        char transport[24]; /* as the engine calls it; "": not known */
};

/* Of a communicator that works. */
struct engine_view {
        uint64_t took; /* microseconds that it took to be made */
        uint32_t n_peers;
        struct engine_peer peer[ENGINE_PEERS];
};

struct engine_ops {
        const char *name;
        uint32_t dialect; /* the latest one that it knows; it knows the earlier ones, too */
        uint32_t kin;   /* only nodes with the same number exchange: 0, or NCCL's version, 22809 for 2.28.9 */
        uint32_t most;  /* that may work at a time: more communicators would block each other; 0: no matter */
        uint32_t lanes; /* of a communicator: more are of no use; 0: as many as one likes */
        /* What is launched before all nodes can launch it is in the way of others, and so is another order of
         * collectives of several communicators on another node. */
        bool agreed;
        const char *(*version)(const struct engine *engine);

        /* Both NULL: there is nothing to tell. False: it does not work, or is not known. */
        void (*describe)(const struct engine *engine, struct engine_description *ret);
        bool (*view)(struct engine *engine, uint64_t comm, struct engine_view *ret);
        /* The communicator's process, if that has not answered for a while, and since when. 0: there is none.
         * NULL: communicators have no processes. */
        pid_t (*silent)(struct engine *engine, uint64_t comm, uint64_t *ret_since);

        /* Readable when dispatch() has something to deliver. */
        int (*fd)(const struct engine *engine);
        void (*dispatch)(struct engine *engine);

        /* Memory that pieces may lie in, under an id of the caller's. 0; 1: they may once shared() has been
         * called; or a negative errno. */
        int (*share)(struct engine *engine, uint64_t memory, const struct engine_memory *what);
        /* No collective uses it. True: nor does the engine. False: it does until unshared() is called. */
        bool (*unshare)(struct engine *engine, uint64_t memory);

        /* Whether collectives may do this; NULL: it does all of them. */
        bool (*can)(const struct engine *engine, unsigned dtype, enum engine_reduce reduce);
        /* Under which address, a number, the other nodes reach this one: for communicators built from now on.
         * NULL where the engine finds out by itself. */
        void (*set_address)(struct engine *engine, const char *address);
        /* 0: built() will be called. Negative errno: nothing happened. */
        int (*build)(struct engine *engine, const struct engine_build *build);
        /* What the node of that rank has published for the communicator of the same name: once or more for
         * each other node, in any order. 0, or -EINVAL: this engine cannot have published it. */
        int (*learn)(struct engine *engine, uint64_t comm, uint32_t rank, const void *table, size_t bytes);
        /* 0: done() will be called, unless the communicator is aborted. Negative errno: nothing happened. */
        int (*launch)(struct engine *engine, const struct engine_launch *launch);
        /* All that was launched is done: the id is free at once, and nothing more comes of it. */
        void (*drop)(struct engine *engine, uint64_t comm);
        /* In any state. aborted() is called within a bounded time, and nothing else before it; then the id is
         * free. */
        void (*abort)(struct engine *engine, uint64_t comm);
};

struct engine {
        const struct engine_ops *ops;
        /* The caller's; set before the first communicator is built. */
        const struct engine_events *events;
        void *owner;
};
